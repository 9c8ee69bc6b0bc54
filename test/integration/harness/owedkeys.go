package harness

import (
	"context"
	"net/url"

	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"

	"invalidator/internal/changelog"
)

// OwedKey is what etcd says that a node owes; false: nothing.
func (p *Pipeline) OwedKey(node string) (value string, there bool) {
	p.t.Helper()
	resp, err := p.etcd.Get(p.t.Context(), p.owedKey(node))
	if err != nil {
		p.t.Fatalf("asking etcd what %s owes: %v", node, err)
	}
	if len(resp.Kvs) == 0 {
		return "", false
	}
	return string(resp.Kvs[0].Value), true
}

// OwedKeyRemovals counts, from now on, how often a node's key is removed from etcd, until the test ends.
func (p *Pipeline) OwedKeyRemovals(node string) (soFar func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	removals, done := make(chan struct{}, 1000), make(chan struct{})
	changes := p.etcd.Watch(ctx, p.owedKey(node))
	go func() {
		defer close(done)
		for resp := range changes {
			for _, e := range resp.Events {
				if e.Type == clientv3.EventTypeDelete {
					removals <- struct{}{}
				}
			}
		}
	}()
	p.t.Cleanup(func() { cancel(); <-done })
	return func() int { return len(removals) }
}

func (p *Pipeline) owedKey(node string) string { return "/" + p.ID + "/owed/" + url.QueryEscape(node) }

// Said is every record of the status topic, in order.
func (p *Pipeline) Said(ctx context.Context) ([]string, error) {
	return p.values(ctx, changelog.NamesFor(p.Config.Kafka.TopicPrefix).Status)
}

// OwnRecords is how many records each of the service's own topics of records for people has taken: control, status, dead letters, refresh requests.
func (p *Pipeline) OwnRecords() map[string]int64 {
	p.t.Helper()
	n := changelog.NamesFor(p.Config.Kafka.TopicPrefix)
	all := map[string]int64{}
	for _, topic := range []string{n.Control, n.Status, n.DeadLetter, n.Refresh, n.Keys} {
		all[topic] = p.records(topic)
	}
	return all
}

// StateKeys are all keys that were ever written to the state topic, also those that were removed.
func (p *Pipeline) StateKeys(ctx context.Context) ([]string, error) {
	keys, _, err := p.states(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, k := range keys {
		all = append(all, k)
	}
	return all, nil
}

// values reads a topic of one partition.
func (p *Pipeline) values(ctx context.Context, topic string) (values []string, err error) {
	ends, err := p.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(topic, 0)
	if end.Offset == 0 {
		return nil, end.Err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, err
		}
		last := int64(-1)
		fs.EachRecord(func(r *kgo.Record) {
			values = append(values, string(r.Value))
			last = r.Offset
		})
		if last >= end.Offset-1 {
			return values, nil
		}
	}
}
