package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink/registry"
)

// Known is what a replay can mean.
type Known struct {
	Shards   map[string][]string // their nodes, under any record of the last cache.max_ttl
	Nodes    []string            // that any of these records names
	Pools    []string            // claimed by a mapping file in force
	Mappings map[string][]string // team/name -> its pools
}

// KnownOf is what a view and the mappings in force say.
func KnownOf(view *registry.View, set *mapping.Set) Known {
	k := Known{Shards: map[string][]string{}, Mappings: map[string][]string{}, Nodes: view.Topology.Nodes()}
	add := func(to map[string][]string, name, of string) {
		if !slices.Contains(to[name], of) {
			to[name] = append(to[name], of)
		}
	}
	for _, s := range view.Sights {
		shards := s.Record.Shards
		if s.Record.Previous != nil {
			shards = slices.Concat(shards, s.Record.Previous.Shards)
		}
		for _, shard := range shards {
			add(k.Shards, shard.ID, shard.Primary.Addr)
			for _, r := range shard.Replicas {
				add(k.Shards, shard.ID, r.Addr)
			}
		}
	}
	for _, f := range set.Files() {
		k.Pools = append(k.Pools, f.Pools...)
		k.Pools = append(k.Pools, f.Underivable...)
	}
	for _, t := range set.Templates() {
		if t.Mapping != "" {
			add(k.Mappings, t.Owner(), t.Pool)
		}
	}
	slices.Sort(k.Pools)
	return k
}

// TargetError is a target that nobody knows.
type TargetError struct {
	Target  replay.Target
	Nearest string   // that it may be a slip of; empty: none is near
	Have    []string // all there are, in order
}

func (e *TargetError) Error() string {
	text := fmt.Sprintf("there is no %s", e.Target)
	switch {
	case e.Nearest != "":
		return text + fmt.Sprintf(" (did you mean %q?)", e.Nearest)
	case len(e.Have) == 0:
		return text + " (none is known)"
	}
	return text + " (there are: " + few(e.Have) + ")"
}

const fewNames = 20

// few lists some names.
func few(names []string) string {
	if n := len(names) - fewNames; n > 0 {
		return strings.Join(names[:fewNames], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// Check says why a replay cannot mean a target: a *TargetError.
func (k Known) Check(t replay.Target) error {
	var name string
	var have []string
	switch {
	case t.Shard != "":
		name, have = t.Shard, slices.Sorted(maps.Keys(k.Shards))
	case t.Node != "":
		name, have = t.Node, slices.Sorted(slices.Values(k.Nodes))
	case t.Pool != "":
		name, have = t.Pool, k.Pools
	case t.Mapping != "":
		name, have = t.Mapping, slices.Sorted(maps.Keys(k.Mappings))
	default:
		return nil // a range is one of every ring
	}
	if slices.Contains(have, name) {
		return nil
	}
	return &TargetError{t, mapping.Nearest(name, have), have}
}

// flushes are the commands that cover what a replay of a target cannot reach.
func (k Known) flushes(t replay.Target) string {
	kind, names := "pool", []string{t.Pool}
	switch {
	case t.Node != "":
		kind, names = "node", []string{t.Node}
	case t.Shard != "":
		kind, names = "node", k.Shards[t.Shard]
	case t.Mapping != "":
		names = k.Mappings[t.Mapping]
	case t.Range != nil:
		names = k.Pools
	}
	commands := make([]string, len(names))
	for i, n := range names {
		commands[i] = "invalidator flush " + kind + " " + n
	}
	return few(commands)
}
