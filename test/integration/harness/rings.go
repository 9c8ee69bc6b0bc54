package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/sink"
)

// PublishAs puts a ring record into etcd as it is, under its own epoch.
func (p *Pipeline) PublishAs(r sink.Record) {
	p.t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.put("ring", string(data))
	p.epoch = r.Epoch
}

// RingsSeen are the ring records that workers have seen, by epoch: the state topic has them.
func (p *Pipeline) RingsSeen() []*sink.Record {
	p.t.Helper()
	store, err := changelog.OpenState(changelog.Options{Brokers: []string{p.Kafka}}, changelog.NamesFor(p.Config.Kafka.TopicPrefix).State)
	if err != nil {
		p.t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	state, err := store.Load(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	saved, err := state.LoadRings(p.Config.Kafka.Group)
	if err != nil {
		p.t.Fatal(err)
	}
	var seen []*sink.Record
	for epoch, s := range saved {
		r, err := sink.ParseRecord(fmt.Sprint("epoch ", epoch), s.Record)
		if err != nil {
			p.t.Fatal(err)
		}
		seen = append(seen, r)
	}
	slices.SortFunc(seen, func(a, b *sink.Record) int { return int(a.Epoch - b.Epoch) })
	return seen
}

// AwaitActed waits until every partition of which something is committed has acted on the ring record of an epoch: what follows from it is owed then,
// or paid.
func (p *Pipeline) AwaitActed(epoch int64) {
	p.t.Helper()
	Await(p.t, fmt.Sprintf("the workers to have acted on epoch %d", epoch), func() (bool, string) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
		defer cancel()
		commits, err := p.Commits(ctx)
		if err != nil {
			return false, err.Error()
		}
		var behind []string
		for _, c := range commits {
			var state struct{ Acted struct{ Epochs []int64 } }
			if err := json.Unmarshal(c.State, &state); err != nil {
				p.t.Fatalf("%s/%d: its state under %s: %v", c.Topic, c.Partition, c.Key, err)
			}
			if !slices.Contains(state.Acted.Epochs, epoch) {
				behind = append(behind, fmt.Sprintf("%s/%d has acted on %v", c.Topic, c.Partition, state.Acted.Epochs))
			}
		}
		return len(commits) > 0 && len(behind) == 0, strings.Join(behind, "; ")
	})
}

// AwaitFlushed waits until every flush that was asked for has its result, and returns these by the requests' ids.
func (p *Pipeline) AwaitFlushed() map[string]replay.Result {
	p.t.Helper()
	results := map[string]replay.Result{}
	AwaitProgress(p.t, "the flushes that were asked for to end", func() (bool, string) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
		defer cancel()
		asked, said, err := p.flushes(ctx)
		if err != nil {
			return false, err.Error()
		}
		clear(results)
		var left []string
		for _, id := range asked {
			if r, is := said.results[id]; is {
				results[id] = r
			} else {
				left = append(left, id)
			}
		}
		return len(left) == 0, fmt.Sprintf("%d of %d have not ended: %s; %d were told of", len(left), len(asked), strings.Join(left, ", "), said.told)
	})
	return results
}

// flushesSaid is what the status topic says of flushes.
type flushesSaid struct {
	results map[string]replay.Result
	told    int // how often there was progress
}

// flushes are the ids of all requests for flushes, and what is said of them.
func (p *Pipeline) flushes(ctx context.Context) (asked []string, said flushesSaid, err error) {
	names := changelog.NamesFor(p.Config.Kafka.TopicPrefix)
	control, err := p.values(ctx, names.Control)
	if err != nil {
		return nil, said, err
	}
	status, err := p.values(ctx, names.Status)
	if err != nil {
		return nil, said, err
	}
	for _, value := range control {
		r, err := replay.DecodeControl([]byte(value))
		if err != nil {
			return nil, said, fmt.Errorf("%s: %w", value, err)
		}
		if q, is := r.(replay.Request); is && q.Action == replay.Flush && !slices.Contains(asked, q.ID) {
			asked = append(asked, q.ID)
		}
	}
	said.results = map[string]replay.Result{}
	for _, value := range status {
		r, err := replay.DecodeStatus([]byte(value))
		if err != nil {
			return nil, said, fmt.Errorf("%s: %w", value, err)
		}
		switch r := r.(type) {
		case replay.Result:
			if _, had := said.results[r.ID]; !had {
				said.results[r.ID] = r
			}
		case replay.Progress:
			if r.Node != "" { // of a flush; a replay tells of a partition
				said.told++
			}
		}
	}
	return asked, said, nil
}
