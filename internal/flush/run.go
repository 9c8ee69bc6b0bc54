package flush

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"invalidator/sink"
	"invalidator/sink/registry"
)

const (
	asideMin = time.Second // how long a node is put aside that cannot be flushed now, doubled each time
	asideMax = 30 * time.Second
)

// run is what a term does with a job.
type run struct {
	round     int       // 1, and 2 where it is all done again; from 3 on about what moved alone
	since     int64     // from round 3 on: it is about what moved since this epoch
	notBefore time.Time // when the round may begin
	started   bool      // it has
	inherited bool      // from an earlier term, or the job's first: it is taken to have begun with the job
	began     time.Time // at the latest
	epoch     int64     // of the ring record in force then, or an earlier one
	places    map[string]*place
	sight     *sight // of the round under the view that stood last
	of        [2]int64
	held      bool // its load has been above the limit for long: others go on until that is over

	keys, copies, kept, refused int64
	parts                       int64 // that had anything
	sample                      error // of what was refused

	opened bool      // its guard let a part pass
	passed int64     // copies that went since it last did
	ended  time.Time // when the last part of it had
	waits  waits
}

// waits is why a job does not go on.
type waits struct {
	kind  string    // of the reason, without its numbers; empty: it goes on
	since time.Time // when that began
	said  bool      // in the log
	told  time.Time // on the status topic, last
}

// place is a node in a round of a job.
type place struct {
	next  rank // all ranks below are done
	done  bool
	mark  *mark
	until time.Time     // it is put aside until then
	pause time.Duration // for so long
	why   string        // it was put aside for
	told  time.Time     // when that was told on the status topic last
	never error         // it can never be flushed
	moves int           // how often it moved items under a mark
}

// mark says what of a node was there before a moment.
type mark struct {
	pid, start int64
	moved      uint64 // items, by then
	cas        uint64 // what has a higher one was written later; 0: nothing can be compared
}

// putAside has the node wait, longer each time. One whose crawler is at work is asked again soon: that is one look at its figures, and may be over at any time.
func (p *place) putAside(now time.Time, why error) {
	p.pause = min(max(2*p.pause, asideMin), asideMax)
	p.until, p.why = now.Add(p.pause), why.Error()
	if busy := (*sink.BusyError)(nil); errors.As(why, &busy) && busy.Why == "" {
		p.until = now.Add(asideMin)
	}
}

// next is followed by a round of all, or of what moved since an epoch.
func (r *run) next(notBefore time.Time, since int64) {
	r.round++
	if since > 0 {
		r.round = max(r.round, movedRound)
	}
	r.since, r.notBefore, r.started, r.inherited, r.places = since, notBefore, false, false, map[string]*place{}
}

// start begins the round.
func (r *run) start(now time.Time, epoch int64) {
	r.started = true
	if !r.inherited {
		r.began, r.epoch = now, epoch
	}
}

// movedRound is the first that may be about what moved alone.
const movedRound = 3

// place is the node's in this round. What an earlier term has told as done is done.
func (j *job) place(node string) *place {
	r := j.run
	p := r.places[node]
	if p == nil {
		p = &place{}
		if r.since == 0 {
			p.next = firstOf(j.done[stage{r.round, node}])
			p.done = p.next.part() >= j.Parts
		}
		r.places[node] = p
	}
	return p
}

// newRun goes on where an earlier term was, as far as it told that. Of its rounds is known when the job began, and no more.
func newRun(j *job, notBefore time.Time) *run {
	r := &run{round: 1, notBefore: notBefore, places: map[string]*place{}, keys: j.keys, copies: j.copies, kept: j.kept}
	r.inherited, r.began, r.epoch = true, j.Taken.Add(-clocksDiffer), j.Epoch
	for at := range j.done {
		r.round = max(r.round, at.round)
	}
	if r.round >= movedRound { // what had moved under which records is not known: all since the job began
		r.since = j.Epoch
	}
	return r
}

// refill is for how long the load is below its limit before the next part begins.
func (j *job) refill() time.Duration { return time.Duration(j.Refill) * time.Second }

// over says whether every node of the round is done, or can never be.
func (j *job) over(nodes []string) bool {
	return !slices.ContainsFunc(nodes, func(node string) bool {
		p := j.place(node)
		return !p.done && p.never == nil
	})
}

// ready is the first node that can be flushed now; empty: none.
func (j *job) ready(nodes []string, now time.Time) string {
	for _, node := range nodes {
		if p := j.place(node); !p.done && p.never == nil && !now.Before(p.until) {
			return node
		}
	}
	return ""
}

// wakes is when the first node may be tried again; zero: none is put aside.
func (j *job) wakes(nodes []string) (at time.Time) {
	for _, node := range nodes {
		if p := j.place(node); !p.done && p.never == nil && (at.IsZero() || p.until.Before(at)) {
			at = p.until
		}
	}
	return at
}

// failed says which nodes could not be flushed, and which keys; nil: none.
func (r *run) failed() error {
	var why []string
	for _, p := range r.places {
		if p.never != nil {
			why = append(why, p.never.Error())
		}
	}
	slices.Sort(why)
	if r.refused > 0 {
		why = append(why, fmt.Sprintf("%d copies were refused by their nodes, and stay: %s", r.refused, r.sample))
	}
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(why, "; "))
}

// again is what follows a round that is over, and from when on: another one of all, since values may have been carried from copy to copy meanwhile, or were filled
// before everybody had seen a promotion; one of what moved since the last began; or nothing.
func (o *Options) again(j *job, v *registry.View, now time.Time) (notBefore time.Time, since int64, more bool) {
	r := j.run
	settled := now.Add(o.Settle)
	switch {
	case j.DryRun || r.failed() != nil:
		return time.Time{}, 0, false
	case r.round == 1 && j.class == promotions:
		seen := j.Taken.Add(clocksDiffer + max(o.Window, o.Lag+o.Settle))
		if seen.Before(settled) {
			seen = settled
		}
		return seen, 0, true
	case r.round == 1 && v.Carrying(r.began, o.Settle):
		return settled, 0, true
	case v.Topology.Epoch() != r.epoch:
		return settled, r.epoch, true
	}
	return time.Time{}, 0, false
}

// partsOf is into how many parts the keys of each of so many nodes are cut, so that all of the ring would be cut into at least so many slices.
func partsOf(slices int, share float64, nodes int) int {
	want := float64(cmp.Or(slices, defaultSlices)) * share / float64(max(nodes, 1))
	return max(1, int(want+0.999999))
}

// defaultSlices has a part be some 3 % of all.
const defaultSlices = 32
