package flush

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/replay"
	"invalidator/sink"
)

// markKey is the item whose CAS value is a mark. It expires.
const markKey = "invalidator-flush-mark"

// maxKey is more than any key has, and what a candidate may have.
const maxKey = 255

// errMoved says that a node moved items in its memory since its mark: what looks as if it was filled later may be as old as any.
var errMoved = errors.New("it moved items in its memory while it was flushed")

// maxMoves is how often a node is looked at again with a new mark since it moved items. After that its keys are deleted without comparing.
const maxMoves = 2

// errRestarted says that a node's process is another than before.
var errRestarted = errors.New("it was restarted while it was flushed: what is not done there begins anew")

// markAll sets a mark on each node that answers. Where that fails the node's visit does it: what is filled until then is deleted too.
func (t *term) markAll(ctx context.Context, j *job, nodes []string) {
	places := make([]*place, len(nodes))
	for i, node := range nodes {
		places[i] = j.place(node)
	}
	var eg errgroup.Group
	eg.SetLimit(askAtOnce)
	for i, node := range nodes {
		if places[i].done {
			continue
		}
		eg.Go(func() error {
			if st, err := t.stats(ctx, node); err == nil {
				places[i].mark, _ = t.mark(ctx, node, st, places[i].moves <= maxMoves)
			}
			return nil
		})
	}
	eg.Wait() // no error is returned
}

func (t *term) stats(ctx context.Context, node string) (sink.NodeStats, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return t.o.Nodes.Stats(ctx, node)
}

// mark sets one, of which the CAS value is taken where items are to be compared with it. st was asked for before.
func (t *term) mark(ctx context.Context, node string, st sink.NodeStats, compare bool) (*mark, error) {
	m := &mark{pid: st.Pid, start: st.Start, moved: st.Moved}
	if !st.CAS || !compare {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	var err error
	if m.cas, err = t.o.Nodes.Mark(ctx, node, markKey); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mark) of(st sink.NodeStats) bool { return m != nil && m.pid == st.Pid && m.start == st.Start }

// visit is one look at a node, and what is done after it.
type visit struct {
	*term
	j     *job
	s     *sight
	node  string
	p     *place
	kept  int64   // that the dump has shown, and that stay
	sure  bool    // all candidates are meant
	found []tally // of a dry run, by part
	guard *guard  // of the job; nil: of a dry run
	parts int     // that are done
}

// visit flushes what of a node is not done, as far as one dump goes. What keeps the node from it is noted there; an error ends the term.
func (t *term) visit(ctx context.Context, j *job, s *sight, node string) error {
	p := j.place(node)
	v := &visit{term: t, j: j, s: s, node: node, p: p}
	err := v.flush(ctx)
	var never *sink.NoDumpError
	var fatal fatalError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, errPreempted):
		return nil
	case errors.As(err, &fatal):
		return fatal.error
	case errors.As(err, &never):
		p.never = err
		t.log.Error("a node can never be flushed as it is run: its job ends with that error when all other nodes are done", "job", j.ID, "node", node, "error", err)
		return v.tellWaits(ctx, err.Error())
	}
	switch {
	case errors.Is(err, errRestarted):
		p.mark = nil
	case errors.Is(err, errMoved):
		p.mark = nil
		p.moves++
		t.log.Info("a node is looked at again, since it moved items in its memory", "job", j.ID, "node", node, "times", p.moves)
		return nil
	}
	now, news := time.Now(), p.why != err.Error()
	p.putAside(now, err)
	if news {
		t.log.Warn("a node cannot be flushed now: it is put aside, and the others go on", "job", j.ID, "node", node, "error", err, "again_in", p.until.Sub(now))
	}
	if p.pause < asideTold || now.Sub(p.told) < asideTold {
		return nil
	}
	p.told = now
	return v.tellWaits(ctx, err.Error())
}

// asideTold is how long a node is put aside before that is told on the status topic, and how often at most.
const asideTold = 4 * time.Second

// errPreempted says that another job goes first, or that this one stops.
var errPreempted = errors.New("another flush goes first")

// fatalError ends a term.
type fatalError struct{ error }

func (v *visit) flush(ctx context.Context) error {
	st, err := v.stats(ctx, v.node)
	switch {
	case err != nil:
		return err
	case st.Running:
		v.metrics.dumps.WithLabelValues(dumpBusy).Inc()
		return &sink.BusyError{Node: v.node}
	}
	if !v.j.DryRun {
		v.guard = v.watch(ctx, v.j)
		if err := v.awaitLoad(ctx, 0); err != nil { // no dump for which nothing may be deleted
			return err
		}
	}
	if !v.p.mark.of(st) {
		if v.p.mark, err = v.mark(ctx, v.node, st, !v.j.DryRun && v.p.moves <= maxMoves); err != nil {
			return fmt.Errorf("setting a mark: %w", err)
		}
	}
	if err := v.o.Holds(ctx); err != nil {
		return fatalError{fmt.Errorf("asking whether this worker still conducts: %w", err)}
	}
	if err := v.dump(ctx); err != nil {
		return err
	}
	switch moved, err := v.same(ctx); {
	case err != nil:
		return err
	case moved && v.kept > 0: // what was newer than the mark may have been moved
		return errMoved
	}
	if v.j.DryRun {
		return v.count(ctx)
	}
	return v.delete(ctx)
}

// dump reads all that the node holds.
func (v *visit) dump(ctx context.Context) error {
	began, seen := time.Now(), 0
	err := v.o.Nodes.Dump(ctx, v.node, v.taker(&seen))
	v.metrics.dumped.Add(float64(seen))
	v.metrics.dumps.WithLabelValues(dumpResult(err)).Inc()
	if err == nil {
		v.log.Info("a node was dumped", "job", v.j.ID, "node", v.node, "keys", seen, "took", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// taker takes in what a dump shows. It never waits, and leaves what takes a microsecond for later: the server shows a key in about that.
func (v *visit) taker(seen *int) func(key []byte, cas uint64) {
	var filter *filter
	filter, v.sure = v.s.filter(v.node)
	if v.j.DryRun {
		return v.dryTaker(filter, seen)
	}
	if v.term.found == nil {
		v.term.found = newCandidates(v.o.Arena)
	}
	found, mark, parts := v.term.found, v.p.mark.cas, v.j.Parts
	found.reset(v.p.next, parts, mark, filter.head())
	return func(key []byte, cas uint64) {
		*seen++
		switch {
		case !filter.has(key) || len(key) > maxKey || string(key) == markKey:
			return
		case mark == 0:
			cas = 0
		case cas > mark: // it was filled since
			v.kept++
			return
		}
		if r := rankOf(key, parts); found.wants(r) {
			found.add(r, cas, key)
		}
	}
}

const (
	// closely is how many keys a dry run looks at closely, and of how many more it does at one.
	closely = 4096
	oneOf   = 16
)

// dryTaker counts what a dump shows. Of many keys it is not looked for each whether it is meant, where that follows from the ring, and whether readers ask for it here first.
func (v *visit) dryTaker(filter *filter, seen *int) func(key []byte, cas uint64) {
	v.found = make([]tally, v.j.Parts)
	matched, parts, first := 0, v.j.Parts, v.s.firstAsked(v.node)
	return func(key []byte, _ uint64) {
		*seen++
		if !filter.has(key) || len(key) > maxKey || string(key) == markKey {
			return
		}
		matched++
		r, weight := rankOf(key, parts), int64(1)
		if matched > closely {
			weight = oneOf
		}
		close := weight == 1 || r%oneOf == 0
		at := &v.found[r.part()]
		switch {
		case v.sure:
			at.copies++
		case close && v.s.has(v.node, key):
			at.copies += weight
		default:
			return
		}
		if close && first(string(key)) {
			at.keys += weight
		}
	}
}

// same is nil while the node's process is the one that has the mark. moved: it has moved items since, so that what looks as if it was filled later may have been moved.
func (v *visit) same(ctx context.Context) (moved bool, err error) {
	st, err := v.stats(ctx, v.node)
	switch {
	case err != nil:
		return false, err
	case !v.p.mark.of(st):
		return false, errRestarted
	}
	return v.p.mark.cas != 0 && st.Moved != v.p.mark.moved, nil
}

// count tells what a dry run has found.
func (v *visit) count(ctx context.Context) error {
	for part, found := range v.found {
		if found.copies == 0 && part != v.j.Parts-1 {
			continue
		}
		v.j.run.add(found)
		if found.copies > 0 {
			v.j.run.parts++
		}
		if err := v.tellPart(ctx, part, found, true); err != nil {
			return err
		}
	}
	v.p.done = true
	return nil
}

// tellPart tells how far a part of a node is.
func (v *visit) tellPart(ctx context.Context, part int, t tally, done bool) error {
	return v.tell(ctx, part, replay.Progress{Keys: t.keys, Copies: t.copies, Kept: t.kept, Done: done})
}

// tellWaits tells why the node does not go on.
func (v *visit) tellWaits(ctx context.Context, why string) error {
	return v.tell(ctx, min(v.p.next.part(), v.j.Parts-1), replay.Progress{Waits: why})
}

func (v *visit) tell(ctx context.Context, part int, p replay.Progress) error {
	p.ID, p.At, p.Worker = v.j.ID, time.Now().UTC(), v.o.Worker
	p.Part, p.Node, p.Round, p.Epoch = &replay.Part{N: part, Of: v.j.Parts}, v.node, v.j.run.round, v.s.view.Topology.Epoch()
	if err := v.topics.Write(ctx, p); err != nil {
		return fatalError{fmt.Errorf("telling how far a flush is: %w", err)}
	}
	return nil
}
