package demo

import (
	"context"
	"encoding/json"
	"fmt"

	"invalidator/sink"
)

// publisher is where the cluster manager, whom the demo plays, publishes ring and hot keys.
type publisher interface {
	// about says where that is.
	about() string
	// config is the cache.ring section of invalidator.yaml.
	config() string
	ring(ctx context.Context, record []byte) error
	hot(ctx context.Context, key string, copies int) error
	// remove takes away what was published.
	remove(ctx context.Context) error
}

// ring is the cluster as its clients know it: what was published last.
type ring struct {
	publisher publisher
	record    *sink.Record
	topology  *sink.Topology
	hot       map[string]int // what the registry declares
}

// shards are two shards over four nodes, each with a replica in the other zone.
func shards(nodes fleet) []sink.Shard {
	shard := func(id string, primary, replica *node) sink.Shard {
		return sink.Shard{
			ID: id, Weight: 1, Primary: sink.Node{Addr: primary.addr, Zone: primary.zone},
			Replicas: []sink.Replica{{Addr: replica.addr, Zone: replica.zone}},
		}
	}
	return []sink.Shard{shard("s00", nodes[0], nodes[1]), shard("s01", nodes[2], nodes[3])}
}

func newRing(ctx context.Context, p publisher, nodes fleet) (*ring, error) {
	r := &ring{publisher: p, hot: map[string]int{}}
	return r, r.publish(ctx, &sink.Record{Epoch: 1, Kind: sink.KindPoints160, Shards: shards(nodes)})
}

func (r *ring) publish(ctx context.Context, record *sink.Record) error {
	topology, err := sink.NewTopology(record)
	if err != nil {
		return err
	}
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the ring record: %w", err)
	}
	if err := r.publisher.ring(ctx, data); err != nil {
		return fmt.Errorf("publishing ring epoch %d: %w", record.Epoch, err)
	}
	r.record, r.topology = record, topology
	return nil
}

// resize begins a resize: the last shard gets a part of the others' keys, and the old ring stands as previous.
func (r *ring) resize(ctx context.Context) error {
	next := *r.record
	next.Epoch++
	next.Previous = &sink.Previous{Epoch: r.record.Epoch, Shards: r.record.Shards}
	next.Shards = append([]sink.Shard(nil), r.record.Shards...)
	next.Shards[len(next.Shards)-1].Weight = 2
	return r.publish(ctx, &next)
}

// heat declares a hot key.
func (r *ring) heat(ctx context.Context, key string, copies int) error {
	if err := r.publisher.hot(ctx, key, copies); err != nil {
		return fmt.Errorf("declaring hot key %s: %w", key, err)
	}
	r.hot[key] = copies
	return nil
}

// copies are all places where readers may have put a key.
func (r *ring) copies(key string) []sink.Copy {
	return r.topology.AppendCopies(nil, key, r.hotness(key))
}

func (r *ring) hotness(key string) int { return max(r.hot[key], declaredHot(key)) }

// moving says whether the key has another owner under previous.
func (r *ring) moving(key string) bool {
	if r.record.Previous == nil {
		return false
	}
	old, err := sink.NewTopology(&sink.Record{Epoch: r.record.Previous.Epoch, Kind: r.record.Kind, Shards: r.record.Previous.Shards})
	if err != nil {
		panic(err) // it was published before
	}
	_, before := old.Locate(key)
	_, now := r.topology.Locate(key)
	return before != now
}

// wires are the texts under which a key stands on nodes.
func (r *ring) wires(key string) []string {
	out := []string{key}
	for n := range r.hotness(key) {
		out = append(out, fmt.Sprintf("%s#%d", key, n+1))
	}
	return out
}
