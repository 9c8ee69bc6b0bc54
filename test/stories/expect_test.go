package stories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

// test says why something is not so; nil: it is.
type test func(s *stage, words []string) error

// conditions are what a story may expect, or await.
var conditions = compile([]form[test]{
	{text: "every copy equals its row", do: func(s *stage, _ []string) error {
		if bad := s.stale(); len(bad) > 0 {
			return errors.New(strings.Join(bad, "; "))
		}
		return nil
	}},
	{text: "NODE has TEXT", do: func(s *stage, a []string) error { return s.hasText(a[0], a[1], true, -1) }},
	{text: "NODE has no TEXT", do: func(s *stage, a []string) error { return s.hasText(a[0], a[1], false, -1) }},
	{text: "NODE has TEXT at version NUM", do: func(s *stage, a []string) error { return s.hasText(a[0], a[1], true, int(number(a[2]))) }},
	{text: "NUM committed", do: func(s *stage, a []string) error {
		n, err := s.committed()
		return is(err, n == number(a[0]), "%d are committed", n)
	}},
	{text: "at most NUM committed", do: func(s *stage, a []string) error {
		n, err := s.committed()
		return is(err, n <= number(a[0]), "%d are committed", n)
	}},
	{text: "no debts", do: func(s *stage, _ []string) error {
		ds, err := s.debts()
		return is(err, len(ds) == 0, "there are the debts %q", ds)
	}},
	{text: `a debt of (node|epoch|replay) (\S+)`, do: func(s *stage, a []string) error {
		ds, err := s.debts()
		return is(err, slices.Contains(ds, a[0]+" "+a[1]), "there are the debts %q", ds)
	}},
	{text: `no debt of (node|epoch|replay) (\S+)`, do: func(s *stage, a []string) error {
		ds, err := s.debts()
		return is(err, !slices.Contains(ds, a[0]+" "+a[1]), "there are the debts %q", ds)
	}},
	{text: "WORKER owns the log", do: func(s *stage, a []string) error {
		return by(func(w *worker) error {
			for p := range s.partitions {
				if len(w.pipe.Finished([]changelog.Partition{{Topic: users, Number: int32(p)}})) == 0 {
					return fmt.Errorf("%s does not own partition %d", a[0], p)
				}
			}
			return nil
		})(s, a)
	}},
	{text: "ID is done", do: func(s *stage, a []string) error {
		r, err := s.result(a[0])
		return is(err, r != nil && r.Clean, "its result is %+v", r)
	}},
	{text: "ID is done with NUM keys and NUM copies", do: func(s *stage, a []string) error {
		r, err := s.result(a[0])
		return is(err, r != nil && r.Clean && r.Keys == number(a[1]) && r.Copies == number(a[2]), "its result is %+v", r)
	}},
	{text: "ID is refused", do: func(s *stage, a []string) error {
		r, err := s.result(a[0])
		return is(err, r != nil && !r.Clean && r.Error != "", "its result is %+v", r)
	}},
	{text: "ID was asked for", do: func(s *stage, a []string) error {
		open, all, err := s.requests()
		return is(err, all[a[0]], "asked for were %v, of which %v are open", all, open)
	}},
	{text: "TEXT is parked", do: func(s *stage, a []string) error {
		_, text, err := s.row(a[0])
		s.mu.Lock()
		defer s.mu.Unlock()
		return is(err, slices.Contains(s.parked, text), "parked are %q", s.parked)
	}},
})

// is gives err, or else an error where something is not so.
func is(err error, so bool, format string, args ...any) error {
	if err == nil && !so {
		err = fmt.Errorf(format, args...)
	}
	return err
}

// patience is how long what is awaited may take.
const patience = 2 * time.Minute

// expect sees whether a condition holds, now or soon.
func (s *stage) expect(condition string, await bool) error {
	holds, words, err := find(conditions, condition)
	if err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; s.pass(250 * time.Millisecond) {
		if err = holds(s, words); err == nil || !await || time.Now().After(end) {
			return err
		}
	}
}

func (s *stage) hasText(name, text string, want bool, version int) error {
	_, on, err := s.row(text)
	n := s.nodes[address(name)]
	if err != nil || n == nil {
		return errors.Join(err, is(nil, n != nil, "no record of the story has node %s", name))
	}
	v, has := n.get(on)
	switch {
	case has && !want:
		return fmt.Errorf("%s has %s, at version %d", name, text, v)
	case !has && want:
		return fmt.Errorf("%s has no %s", name, text)
	case has && version >= 0 && v != version:
		return fmt.Errorf("%s has %s at version %d", name, text, v)
	}
	return nil
}

// committed is how many records of the log the fleet has committed.
func (s *stage) committed() (n int64, err error) {
	offsets, err := s.adm.FetchOffsets(context.Background(), fleet)
	if err != nil {
		return 0, err
	}
	for p := range s.partitions {
		if o, there := offsets.Lookup(users, int32(p)); there {
			n += max(o.At, 0)
		}
	}
	return n, nil
}

// states are what the newest owner of each partition has written down.
func (s *stage) states() (map[string]pipeline.State, error) {
	st, err := s.store.Load(context.Background())
	if err != nil {
		return nil, err
	}
	states, newest := map[string]pipeline.State{}, map[string]int{}
	for key, e := range st.Under("partition", fleet, users) {
		parts, err := changelog.SplitStateKey(key)
		if err != nil || len(parts) < 5 {
			return nil, fmt.Errorf("the state's key %s: %w", key, err)
		}
		generation, err := strconv.Atoi(parts[4])
		if err != nil {
			return nil, err
		}
		if was, known := newest[parts[3]]; known && was > generation {
			continue
		}
		var state pipeline.State
		if err := json.Unmarshal(e.Value, &state); err != nil {
			return nil, err
		}
		newest[parts[3]], states[parts[3]] = generation, state
	}
	return states, nil
}

// debts are those of all partitions: "node a", "epoch 1-2". Those of nodes that are dead are not counted.
func (s *stage) debts() (list []string, err error) {
	states, err := s.states()
	return s.debtsOf(states), err
}

func (s *stage) debtsOf(states map[string]pipeline.State) (list []string) {
	for _, state := range states {
		for _, d := range state.Debts {
			if n := s.nodes[d.Name]; d.Kind != pipeline.KindNode || n == nil || !n.dead {
				list = append(list, d.Kind+" "+nameOf(d.Name))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// unrest says what is still to come. Empty: nothing.
func (s *stage) unrest() (why string, err error) {
	if len(s.later) > 0 {
		return "something is to happen yet", nil
	}
	for replica, list := range s.copying {
		if len(list) > 0 && !s.nodes[replica].dead {
			return "values are being copied to " + nameOf(replica), nil
		}
	}
	dead := false // then what it owes stays, and hot keys that it may have
	for _, n := range s.nodes {
		dead = dead || n.dead
	}
	for _, w := range s.workers {
		if why := w.link.busy(); why != "" {
			return why, nil
		}
	}
	states, err := s.states()
	if err != nil {
		return "", err
	}
	if len(states) < s.partitions {
		return fmt.Sprintf("of %d partitions %d have a state", s.partitions, len(states)), nil
	}
	for number, st := range states {
		if acted := st.Acted.Epochs; len(acted) == 0 || acted[len(acted)-1] != s.ring().epoch || st.Acted.HotRevision != int64(len(s.hot)-1) && !dead {
			return fmt.Sprintf("partition %s has acted on %+v", number, st.Acted), nil
		}
	}
	if ds := s.debtsOf(states); len(ds) > 0 {
		return fmt.Sprintf("there are the debts %q", ds), nil
	}
	n, err := s.committed()
	if err != nil || n < s.logged {
		return fmt.Sprintf("%d of %d are committed", n, s.logged), err
	}
	if !s.asks {
		return "", nil
	}
	open, _, err := s.requests()
	if len(open) > 0 && !dead { // a flush waits for a node that is dead until what that held has expired
		why = fmt.Sprintf("requests are open: %v", open)
	}
	return why, err
}

// requests are what was asked for on the control topic, and what of it has no result.
func (s *stage) requests() (open []string, all map[string]bool, err error) {
	all = map[string]bool{}
	err = s.read(s.cluster.Names.Control, func(r changelog.Record) {
		if record, err := replay.DecodeControl(r.Value); err == nil {
			if q, is := record.(replay.Request); is && (q.Action == replay.Replay || q.Action == replay.Flush) {
				all[q.ID] = true
			}
		}
	})
	if err != nil || len(all) == 0 {
		return nil, all, err
	}
	ended := map[string]bool{}
	err = s.results(func(r *replay.Result) { ended[r.ID] = true })
	for id := range all {
		if !ended[id] {
			open = append(open, id)
		}
	}
	slices.Sort(open)
	return open, all, err
}

// result is the first of an id; nil: there is none.
func (s *stage) result(id string) (first *replay.Result, err error) {
	err = s.results(func(r *replay.Result) {
		if r.ID == id && first == nil {
			first = r
		}
	})
	return first, err
}

func (s *stage) results(each func(*replay.Result)) error {
	return s.read(s.cluster.Names.Status, func(r changelog.Record) {
		if record, err := replay.DecodeStatus(r.Value); err == nil {
			if result, is := record.(replay.Result); is {
				each(&result)
			}
		}
	})
}

// read reads a topic of one partition.
func (s *stage) read(topic string, each func(changelog.Record)) error {
	return s.past.Read(context.Background(), changelog.Partition{Topic: topic}, 0, math.MaxInt64, func(rs []changelog.Record) error {
		for _, r := range rs {
			each(r)
		}
		return nil
	})
}
