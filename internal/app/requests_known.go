package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/control"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// known is what the state topic has of a fleet: what a request can be about.
type known struct {
	control.Known
	readers     map[string]mapping.Readers // of each pool
	underivable []string                   // pools whose keys no row gives
	ring        *sink.Record               // the newest; nil: none is known
	workers     int                        // that have spoken lately
	bad         error                      // what could not be read
}

// spokenLately is how long a worker that runs may seem to be silent, with a clock that differs from ours.
const spokenLately = time.Minute

func (d *Desk) known(ctx context.Context, now time.Time) (*known, error) {
	store, err := changelog.OpenState(d.kafka, d.names.State)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	files, rings := changelog.KeysUnder("mappings", d.group), changelog.KeysUnder("ring", d.group)
	processes := changelog.KeysUnder("process")
	st, err := store.LoadOnly(ctx, func(key []byte) bool { return files(key) || rings(key) || processes(key) })
	if err != nil {
		return nil, err
	}
	return knownOf(st, d.group, now), nil
}

func knownOf(st *changelog.State, group string, now time.Time) *known {
	set, bad := savedSet(st, group), []error(nil)
	for _, saved := range st.LoadMappings(group) {
		bad = append(bad, saved.Err)
	}
	k := &known{readers: map[string]mapping.Readers{}, underivable: set.Underivable()}
	view, err := savedView(st, group)
	k.bad = errors.Join(append(bad, err)...)
	k.Known, k.ring = control.KnownOf(view, set), view.Topology.Record()
	for _, f := range set.Files() {
		for _, pool := range slices.Concat(f.Pools, f.Underivable) {
			k.readers[pool] = f.Readers
		}
	}
	for _, e := range st.Under("process") {
		if p, err := parseProcess(e); err == nil && p.Group == group && p.Role == roleWorker && now.Sub(p.At) <= spokenLately {
			k.workers++
		}
	}
	return k
}

// savedView is the ring records that workers have written down and that still count. Where there are none its topology is empty. The error tells of those that cannot be read.
func savedView(st *changelog.State, group string) (*registry.View, error) {
	v := &registry.View{Topology: new(sink.Topology), Hot: sink.NewHotKeys(0, nil)}
	saved, err := st.LoadRings(group)
	bad := []error{err}
	var records []*sink.Record // the newest first
	for _, epoch := range slices.Sorted(maps.Keys(saved)) {
		r, err := sink.ParseRecord(changelog.RingKey(group, epoch), saved[epoch].Record)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		v.Sights = append(v.Sights, registry.Sight{Record: r, Seen: saved[epoch].Seen})
		records = append([]*sink.Record{r}, records...)
	}
	if len(records) > 0 {
		t, err := sink.NewTopology(records[0], records[1:]...)
		if err != nil {
			return v, errors.Join(append(bad, err)...)
		}
		v.Topology = t
	}
	return v, errors.Join(bad...)
}

// check refuses a target that nobody knows, with the nearest, and writes a mapping's name out.
func (k *known) check(r *replay.Request) error {
	t := &r.Target
	if t.Mapping != "" {
		name, err := k.mapping(t.Mapping)
		if err != nil {
			return err
		}
		t.Mapping = name
	}
	if t.Range != nil && t.Range.From == t.Range.To {
		return refuse("the range from %d to %d is all of the ring: name nodes, shards or pools in place of it", t.Range.From, t.Range.To)
	}
	each := []replay.Target{*t}
	if t.Pool != "" && t.Shard != "" {
		each = []replay.Target{{Pool: t.Pool}, {Shard: t.Shard}}
	}
	for _, one := range each {
		if err := k.Check(one); err != nil {
			return k.unknown(err)
		}
	}
	if r.Stale {
		return k.stale(*t)
	}
	return nil
}

// unknown refuses a target that nobody knows, and says what may be the reason where nothing is known at all.
func (k *known) unknown(err error) error {
	text := err.Error()
	if none := (*control.TargetError)(nil); errors.As(err, &none) && len(none.Have) == 0 {
		text += ": no worker has written down a ring record, or a mapping file (start one; is kafka.group right?)"
	}
	if k.bad != nil {
		text += "; and this could not be read: " + k.bad.Error()
	}
	return &RefusedRequest{text}
}

// mapping finds a mapping by team/name, or by its name alone where one team has it.
func (k *known) mapping(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var same []string
	all := slices.Sorted(maps.Keys(k.Mappings))
	for _, full := range all {
		if shortName(full) == name {
			same = append(same, full)
		}
	}
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		return "", refuse("the mapping %q is of several teams: %s", name, strings.Join(same, ", "))
	}
	short := map[string]string{}
	for _, full := range all {
		short[shortName(full)] = full
	}
	near := short[mapping.Nearest(name, slices.Sorted(maps.Keys(short)))]
	return "", k.unknown(&control.TargetError{Target: replay.Target{Mapping: name}, Nearest: near, Have: all})
}

// shortName is a mapping's name without its team.
func shortName(full string) string {
	_, name, _ := strings.Cut(full, "/")
	return name
}

// someOf lists names, of which there may be many.
func someOf(all []string) string {
	const some = 12
	if len(all) > some {
		return strings.Join(all[:some], ", ") + fmt.Sprintf(" and %d more", len(all)-some)
	}
	return strings.Join(all, ", ")
}

// stale refuses to mark keys stale whose readers would not see the mark.
func (k *known) stale(t replay.Target) error {
	pools := []string{t.Pool}
	if t.Pool == "" {
		pools = k.Pools
	}
	for _, pool := range pools {
		if k.readers[pool] != mapping.ReadersMeta {
			return refuse("--stale: the readers of pool %s do not speak meta, and would take stale values for good (readers: meta in its mapping file, or flush without --stale)", pool)
		}
	}
	return nil
}

func nodesOf(s *sink.Shard) []string {
	nodes := []string{s.Primary.Addr}
	for _, r := range s.Replicas {
		nodes = append(nodes, r.Addr)
	}
	return nodes
}

// share is about which part of all keys a target takes in, by the newest ring record; 1 where that is not known.
func (k *known) share(t replay.Target) float64 {
	if k.ring == nil {
		return 1
	}
	all, meant := 0, 0
	for _, s := range k.ring.Shards {
		all += s.Weight
		if s.ID == t.Shard || t.Node != "" && slices.Contains(nodesOf(&s), t.Node) {
			meant += s.Weight
		}
	}
	switch {
	case t.Range != nil:
		return float64(uint64(t.Range.To)-uint64(t.Range.From)) / math.MaxUint64
	case t.Shard == "" && t.Node == "", meant == 0: // a former record's may have anything
		return 1
	}
	return float64(meant) / float64(all)
}

// promotionHint says what a replay of a shard leaves out, which a promotion needs too.
func (k *known) promotionHint(t replay.Target) string {
	if t.Shard == "" || len(k.underivable) == 0 {
		return ""
	}
	return fmt.Sprintf("no row gives the keys of %s: after a promotion also flush what the shard has of them (invalidator flush pool %s --shard %s)",
		strings.Join(k.underivable, ", "), k.underivable[0], t.Shard)
}

// flushes are the commands that delete what a replay of a target cannot reach any more.
func (k *known) flushes(t replay.Target) []string {
	kind, names := "pool", []string{t.Pool}
	switch {
	case t.Mapping != "":
		names = k.Mappings[t.Mapping]
	case t.Node != "":
		kind, names = "node", []string{t.Node}
	case t.Shard != "":
		kind, names = "node", k.Shards[t.Shard]
	case t.Range != nil:
		names = k.Pools
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = "invalidator flush " + kind + " " + name
	}
	return all
}

// fewLetters tell two requests apart that are alike.
func fewLetters() string { return strings.ToLower(rand.Text()[:6]) }
