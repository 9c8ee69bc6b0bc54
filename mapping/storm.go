package mapping

import (
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// Storm says what of a pool is too much at once to be deleted as it comes, and how it is deleted then. Rates count keys of all workers of a
// fleet together; a key is deleted on all its copies, in all its rounds.
type Storm struct {
	Rows  int           // rows of one transaction that are deleted at once; what follows is a storm. 0: no transaction is one
	Rate  int           // keys a second that are deleted at once; what is over it is a storm. 0: no limit
	Pace  int           // keys a second of a storm, at least 1
	Lane  StormLane     // what they go behind in the nodes' queues
	Stale time.Duration // copies are marked stale for so long in place of being deleted; 0: they are deleted
}

// StormLane is a closed set.
type StormLane string

const (
	LaneDebts  StormLane = "debts"  // with what nodes owe
	LaneStorm  StormLane = "storm"  // behind it: the default
	LaneReplay StormLane = "replay" // with replays by hand
)

// StormLanes are all of them, first served first.
var StormLanes = []StormLane{LaneDebts, LaneStorm, LaneReplay}

// maxStorm bounds rows and rates: more than anybody has.
const maxStorm = 1_000_000_000

// stormSaid is what a file says of a pool's storms: nil and zero stand for the fleet's.
type stormSaid struct {
	rows, rate, pace *int
	lane             StormLane
	stale            time.Duration
}

func (s stormSaid) over(fleet Storm) Storm {
	for _, f := range []struct {
		said *int
		to   *int
	}{{s.rows, &fleet.Rows}, {s.rate, &fleet.Rate}, {s.pace, &fleet.Pace}} {
		if f.said != nil {
			*f.to = *f.said
		}
	}
	if s.lane != "" {
		fleet.Lane = s.lane
	}
	fleet.Stale = s.stale
	return fleet
}

// Storms are the settings of the pools that have some of their own; every other pool has the fleet's.
func (s *Set) Storms(fleet Storm) map[string]Storm {
	all := map[string]Storm{}
	for _, f := range s.files {
		for pool, said := range f.storms {
			all[pool] = said.over(fleet)
		}
	}
	return all
}

// storms reads what a file says of its pools' storms.
func (r *fileReader) readStorms(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "write storm: {user: {rows: 1000}}", "storm must be pools with settings, not %s", describe(n))
		return
	}
	r.f.storms = map[string]stormSaid{}
	r.pairs(n, func(key, value *yaml.Node) {
		if r.f.claims[key.Value] == nil {
			r.errorf(key, didYouMean(key.Value, slices.Concat(r.f.Pools, r.f.Underivable)), "storm: pool %q is not one of this file's", key.Value)
			return
		}
		r.f.storms[key.Value] = r.storm(value)
	})
}

func (r *fileReader) storm(n *yaml.Node) (s stormSaid) {
	number := func(to **int, what string, least int) func(*yaml.Node) {
		return func(n *yaml.Node) {
			v := r.number(n, what, maxStorm)
			if n.Tag == "!!int" && v < least {
				r.errorf(n, "", "%s must be at least %d", what, least)
			}
			*to = &v
		}
	}
	r.object(n, "a pool's storm", []field{
		{name: "rows", read: number(&s.rows, "rows", 0)},
		{name: "rate", read: number(&s.rate, "rate", 0)},
		{name: "pace", read: number(&s.pace, "pace", 1)},
		{name: "lane", read: func(n *yaml.Node) {
			text, ok := r.text(n, "lane")
			if ok && !slices.Contains(StormLanes, StormLane(text)) {
				r.errorf(n, didYouMean(text, []string{string(LaneDebts), string(LaneStorm), string(LaneReplay)}), "lane must be debts, storm or replay, not %q", text)
			}
			s.lane = StormLane(text)
		}},
		{name: "stale", read: func(n *yaml.Node) {
			if s.stale = r.seconds(n, "stale"); r.f.Readers != ReadersMeta {
				r.warnf(n, "write readers: meta if every reader of these pools asks by mg and heeds its flags", "the file's readers are classic: its keys are deleted, not marked stale")
				s.stale = 0
			}
		}},
	})
	return s
}
