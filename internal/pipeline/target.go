package pipeline

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"invalidator/cdc"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// targetOf is what a replay takes in of the records that its debt has: keys of its target, and, of a window of commits, the changes that were committed in it or of
// which something was issued in it. One that does not say when it was committed counts. Some sources tell whole seconds, of which none is later than the commit.
func targetOf(o *Order) targetFunc {
	takes := keysOfTarget(o.Target)
	if o.Issued {
		return func(k *mapping.Key, copies []sink.Copy, hot int, _ *cdc.RowChange, _ int64, _ time.Time, today *Snapshot) bool {
			return takes(k, copies, hot, today.View)
		}
	}
	sent, from := spans(o.Sent), o.From.Add(-time.Second)
	return func(k *mapping.Key, copies []sink.Copy, hot int, row *cdc.RowChange, offset int64, _ time.Time, today *Snapshot) bool {
		at := row.CommitTime
		in := at.IsZero() || !at.Before(from) && !at.After(o.To) || sent.has(offset)
		return in && takes(k, copies, hot, today.View)
	}
}

// takesKey reports whether a key is of a target, under a view. copies and hot are the key's under it.
type takesKey func(k *mapping.Key, copies []sink.Copy, hot int, v *registry.View) bool

func keysOfTarget(t replay.Target) takesKey {
	switch {
	case t.Pool != "":
		return func(k *mapping.Key, _ []sink.Copy, _ int, _ *registry.View) bool { return k.Template.Pool == t.Pool }
	case t.Mapping != "":
		return func(k *mapping.Key, _ []sink.Copy, _ int, _ *registry.View) bool {
			return k.Template.Mapping != "" && k.Template.Owner() == t.Mapping
		}
	case t.Node != "":
		return func(_ *mapping.Key, copies []sink.Copy, _ int, _ *registry.View) bool {
			return slices.ContainsFunc(copies, func(c sink.Copy) bool { return c.Node == t.Node })
		}
	case t.Range != nil:
		return func(k *mapping.Key, _ []sink.Copy, hot int, v *registry.View) bool {
			return anyText(k.Text, hot, func(text string) bool {
				hash, _ := v.Topology.Locate(text)
				return t.Range.Has(hash)
			})
		}
	}
	s := &ofShard{id: t.Shard}
	return func(k *mapping.Key, _ []sink.Copy, hot int, v *registry.View) bool {
		rings := s.rings(v)
		return anyText(k.Text, hot, func(text string) bool {
			return slices.ContainsFunc(rings, func(r *sink.Topology) bool {
				_, shard := r.Locate(text)
				return shard == s.id
			})
		})
	}
}

// anyText reports whether is says so of a key or of one of its hot copies.
func anyText(key string, hot int, is func(text string) bool) bool {
	if is(key) {
		return true
	}
	for n := 1; n <= hot; n++ {
		if is(key + "#" + strconv.Itoa(n)) {
			return true
		}
	}
	return false
}

// ofShard knows the rings of a view that have a shard: of every record of the last cache.max_ttl, and of what stood as its previous. Any goroutine may use it.
type ofShard struct {
	id   string
	last atomic.Pointer[shardRings]
}

type shardRings struct {
	view  *sink.Topology // of which they are
	rings []*sink.Topology
}

func (s *ofShard) rings(v *registry.View) []*sink.Topology {
	if last := s.last.Load(); last != nil && last.view == v.Topology {
		return last.rings
	}
	now := &shardRings{view: v.Topology}
	known := map[string]bool{}
	for _, sight := range v.Sights {
		r := *sight.Record
		r.Previous = nil
		now.add(s.id, r, known)
		if p := sight.Record.Previous; p != nil {
			r.Shards = p.Shards
			now.add(s.id, r, known)
		}
	}
	s.last.Store(now)
	return now.rings
}

// add takes a record's ring in, if the shard is in it and no record before had the same ring.
func (s *shardRings) add(id string, r sink.Record, known map[string]bool) {
	if !slices.ContainsFunc(r.Shards, func(s sink.Shard) bool { return s.ID == id }) {
		return
	}
	ring := ringText(&r)
	if known[ring] {
		return
	}
	known[ring] = true
	t, err := sink.NewTopology(&r)
	if err != nil {
		panic(err) // the record was valid with its previous, and so are both alone
	}
	s.rings = append(s.rings, t)
}

// ringText is equal for records that have one ring: most differ from the one before in their nodes alone.
func ringText(r *sink.Record) string {
	var b strings.Builder
	for _, text := range []string{r.Kind, r.KeyPrefix, r.Hash, r.HashTag} {
		b.WriteString(strconv.Quote(text))
	}
	for i := range r.Shards {
		s := &r.Shards[i]
		b.WriteString(strconv.Quote(s.ID) + strconv.Itoa(s.Weight))
		if r.Kind != sink.KindPoints160 {
			b.WriteString(strconv.Quote(s.Name) + strconv.Quote(s.Server) + strconv.Quote(s.Primary.Addr))
		}
	}
	return b.String()
}
