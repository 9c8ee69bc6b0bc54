package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
)

// Owed is what the workers still owe: a line a debt, from the state that each partition's commit points to. An error is a state that
// cannot be read. It reads the topics itself, beside the service.
func (p *Pipeline) Owed(ctx context.Context) ([]string, error) {
	committed, err := p.adm.FetchOffsets(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	records, newest, err := p.states(ctx)
	if err != nil {
		return nil, err
	}
	var owed []string
	for _, c := range committed.Sorted() {
		var place struct {
			Partition int32
			Offset    int64
		}
		if err := json.Unmarshal([]byte(c.Metadata), &place); err != nil {
			return nil, fmt.Errorf("%s/%d: its commit says %q: %w", c.Topic, c.Partition, c.Metadata, err)
		}
		at, ok := records[statePlace{place.Partition, place.Offset}]
		if !ok {
			return nil, fmt.Errorf("%s/%d: no state at %d/%d", c.Topic, c.Partition, place.Partition, place.Offset)
		}
		var state struct {
			Offset int64
			Debts  []struct {
				Kind, Name string
				From       int64
				To         *int64
			}
		}
		if err := json.Unmarshal(newest[at], &state); err != nil {
			return nil, fmt.Errorf("%s/%d: its state under %s: %w", c.Topic, c.Partition, at, err)
		}
		for _, d := range state.Debts {
			to := "now"
			if d.To != nil {
				to = fmt.Sprint(*d.To)
			}
			owed = append(owed, fmt.Sprintf("%s/%d at %d: %s %s, [%d, %s)", c.Topic, c.Partition, state.Offset, d.Kind, d.Name, d.From, to))
		}
	}
	slices.Sort(owed)
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
