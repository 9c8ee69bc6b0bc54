package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
)

// Committed is a partition's committed offset, and the state that counts with it.
type Committed struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       string // on the state topic
	State     []byte // JSON
}

// Commits are what the workers have committed, in the order of partitions. An error is a state that is not there. It reads the topics
// itself, beside the service.
func (p *Pipeline) Commits(ctx context.Context) ([]Committed, error) {
	committed, err := p.adm.FetchOffsets(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	keys, newest, err := p.states(ctx)
	if err != nil {
		return nil, err
	}
	var out []Committed
	for _, c := range committed.Sorted() {
		var place struct {
			Partition int32
			Offset    int64
		}
		if err := json.Unmarshal([]byte(c.Metadata), &place); err != nil {
			return nil, fmt.Errorf("%s/%d: its commit says %q: %w", c.Topic, c.Partition, c.Metadata, err)
		}
		key, ok := keys[statePlace{place.Partition, place.Offset}]
		if !ok { // a later one has taken its place, or it was written since
			return nil, fmt.Errorf("%s/%d: no state at %d/%d", c.Topic, c.Partition, place.Partition, place.Offset)
		}
		out = append(out, Committed{c.Topic, c.Partition, c.At, key, newest[key]})
	}
	return out, nil
}

// PutState writes a state as a worker does.
func (p *Pipeline) PutState(ctx context.Context, key string, state []byte) error {
	topic := changelog.NamesFor(p.Config.Kafka.TopicPrefix).State
	return p.kafka.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(key), Value: state}).FirstErr()
}

// Owed is what the workers still owe, a line a debt, from their commits, and hot keys whose copies have not all been deleted yet.
func (p *Pipeline) Owed(ctx context.Context) ([]string, error) {
	commits, err := p.Commits(ctx)
	if err != nil {
		return nil, err
	}
	var owed []string
	for _, c := range commits {
		var state struct {
			Offset int64 `json:"offset"`
			Debts  []struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
				From int64  `json:"from"`
				To   *int64 `json:"to"`
			} `json:"debts"`
			Issued, Acted struct {
				HotRevision int64 `json:"hot_revision"`
			}
		}
		if err := json.Unmarshal(c.State, &state); err != nil {
			return nil, fmt.Errorf("%s/%d: its state under %s: %w", c.Topic, c.Partition, c.Key, err)
		}
		for _, d := range state.Debts {
			to := "now"
			if d.To != nil {
				to = fmt.Sprint(*d.To)
			}
			owed = append(owed, fmt.Sprintf("%s/%d at %d: %s %s, [%d, %s)", c.Topic, c.Partition, state.Offset, d.Kind, d.Name, d.From, to))
		}
		if state.Acted.HotRevision < state.Issued.HotRevision {
			owed = append(owed, fmt.Sprintf("%s/%d at %d: hot keys since revision %d", c.Topic, c.Partition, state.Offset, state.Acted.HotRevision))
		}
	}
	return owed, nil
}

type statePlace struct {
	partition int32
	offset    int64
}

// states reads the state topic: the key of each record, and the newest value of each key.
func (p *Pipeline) states(ctx context.Context) (keys map[statePlace]string, newest map[string][]byte, err error) {
	topic := changelog.NamesFor(p.Config.Kafka.TopicPrefix).State
	ends, err := p.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	left := map[int32]int64{} // partition -> its end
	ends.Each(func(e kadm.ListedOffset) {
		if e.Offset > 0 {
			left[e.Partition] = e.Offset
		}
	})
	keys, newest = map[statePlace]string{}, map[string][]byte{}
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return nil, nil, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			keys[statePlace{r.Partition, r.Offset}] = string(r.Key)
			newest[string(r.Key)] = r.Value
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		})
	}
	return keys, newest, nil
}

// AwaitPaid waits until the workers owe nothing.
func (p *Pipeline) AwaitPaid() {
	p.t.Helper()
	Await(p.t, "the workers to owe nothing", func() (bool, string) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
		defer cancel()
		owed, err := p.Owed(ctx)
		if err != nil {
			return false, err.Error()
		}
		return len(owed) == 0, strings.Join(owed, "; ")
	})
}
