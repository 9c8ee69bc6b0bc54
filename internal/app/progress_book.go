package app

import (
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// works is what the control and status topics say of replays and flushes. It is for one goroutine.
type works struct {
	byID   map[string]*oneWork
	order  []*oneWork // as they were met
	jobs   map[string]*replay.Job
	rates  map[string]replay.Owed // of nodes: what was said last, by group and node
	unread int                    // records that this version cannot read

	nodes func(*replay.Job) int // how many nodes a flush goes to; nil, or 0: not known
}

// oneWork is what is known of an id.
type oneWork struct {
	id       string
	request  *replay.Request // the first
	taken    time.Time       // when the broker took it
	plan     *replay.Plan    // the first that counts
	cancel   *replay.Request
	pause    *replay.Request // the last word of pause and resume
	job      *replay.Job     // the first that answers it
	result   *replay.Result  // the first
	progress map[progressID]replay.Progress
	begun    time.Time // when progress was told first
}

// progressID is of which the last progress record counts.
type progressID struct {
	topic     string
	partition int32
	part      replay.Part
	node      string
	round     int
}

func newWorks() *works {
	return &works{byID: map[string]*oneWork{}, jobs: map[string]*replay.Job{}, rates: map[string]replay.Owed{}}
}

func (b *works) of(id string) *oneWork {
	w := b.byID[id]
	if w == nil {
		w = &oneWork{id: id, progress: map[progressID]replay.Progress{}}
		b.byID[id], b.order = w, append(b.order, w)
	}
	return w
}

// asked returns the request of an id.
func (b *works) asked(id string) (r replay.Request, there bool) {
	if w := b.byID[id]; w != nil && w.request != nil {
		return *w.request, true
	}
	return r, false
}

// control takes records of the control topic, in their order.
func (b *works) control(rs []changelog.Record) error {
	for _, r := range rs {
		record, err := replay.DecodeControl(r.Value)
		if err != nil {
			b.unread++
			continue
		}
		switch x := record.(type) {
		case replay.Request:
			b.word(x, r.Time)
		case replay.Plan:
			if w := b.of(x.ID); w.plan == nil && w.cancel == nil {
				w.plan = &x
			}
		case replay.Job:
			if b.jobs[x.ID] != nil {
				continue
			}
			b.jobs[x.ID] = &x
			for _, id := range x.Answers {
				if w := b.of(id); w.job == nil {
					w.job = &x
				}
			}
		}
	}
	return nil
}

func (b *works) word(r replay.Request, taken time.Time) {
	if _, again := b.asked(r.ID); again {
		return
	}
	switch r.Action {
	case replay.Replay, replay.Flush:
		w := b.of(r.ID)
		w.request, w.taken = &r, taken
	case replay.Cancel:
		w := b.of(r.Of)
		if forced := w.request == nil || w.request.Cause == nil || r.Force; w.cancel == nil && forced {
			w.cancel = &r
		}
	case replay.Pause, replay.Resume:
		if r.Of != "" {
			b.of(r.Of).pause = &r
		}
	}
}

// status takes records of the status topic, in their order.
func (b *works) status(rs []changelog.Record) error {
	for _, r := range rs {
		record, err := replay.DecodeStatus(r.Value)
		if err != nil {
			b.unread++
			continue
		}
		switch x := record.(type) {
		case replay.Progress:
			w := b.of(x.ID)
			id := progressID{topic: x.Range.Topic, partition: x.Range.Partition, node: x.Node, round: x.Round}
			if x.Part != nil {
				id.part = *x.Part
			}
			w.progress[id] = x
			if w.begun.IsZero() {
				w.begun = x.At
			}
		case replay.Result:
			if w := b.of(x.ID); w.result == nil {
				w.result = &x
			}
		case replay.Owed:
			b.rates[x.Group+"\x00"+x.Node] = x
		}
	}
	return nil
}

// endings takes the results alone of records of the status topic, for works that have none yet.
func (b *works) endings(rs []changelog.Record) error {
	for _, r := range rs {
		record, err := replay.DecodeStatus(r.Value)
		if err != nil {
			continue // for others
		}
		if x, is := record.(replay.Result); is && b.byID[x.ID] != nil && b.byID[x.ID].result == nil {
			b.byID[x.ID].result = &x
		}
	}
	return nil
}

// list are the works, by when they were asked for, or begun: requests, and what changes of the ring make done again.
func (b *works) list(now time.Time) []Work {
	var all []Work
	for _, w := range b.order {
		if w.request != nil || strings.HasPrefix(w.id, KindEpoch+"/") {
			all = append(all, b.work(w, now))
		}
	}
	slices.SortStableFunc(all, func(a, b Work) int { return a.first().Compare(b.first()) })
	return all
}

// first is when it was first heard of.
func (w *Work) first() time.Time {
	if w.At.IsZero() {
		return w.Begun
	}
	return w.At
}

// work puts together what is known of one.
func (b *works) work(of *oneWork, now time.Time) Work {
	w := Work{ID: of.id, Kind: KindEpoch, Begun: of.begun}
	if r := of.request; r != nil {
		w.Kind = string(r.Action)
		w.Target, w.Window, w.From, w.To, w.DryRun, w.Options = r.Target, r.Window, r.From, r.To, r.DryRun, r.Options
		w.By, w.Reason, w.At, w.Expires, w.Cause = r.By, r.Reason, r.At, r.Expires, r.Cause
	}
	if of.plan != nil && w.To.IsZero() {
		w.To = of.plan.To
	}
	progress := b.progressOf(of)
	w.told(progress)
	if of.job != nil {
		w.Job, w.Limit = of.job.ID, of.job.Limit
		w.Done, w.All, w.Round = partsDone(progress, of.job.Parts, b.nodesOf(of.job))
		if w.Begun.IsZero() {
			w.Begun = of.job.At
		}
	}
	if of.cancel != nil {
		w.CancelledBy = of.cancel.By
	}
	w.State = of.state(progress, now)
	b.end(&w, of, now)
	return w
}

// end fills in how it ended, or when it will.
func (b *works) end(w *Work, of *oneWork, now time.Time) {
	if w.State.Ended() {
		w.Why, w.Ended = "", w.Last
	}
	if w.State.Good() { // what was not told of had nothing to do
		w.Done = w.All
	}
	if r := of.result; r != nil {
		w.Why, w.Ended = r.Error, r.At
		if of.cancel == nil { // else what was done until then was told part by part
			w.Keys, w.Copies, w.Kept, w.Owed, w.Lost = r.Keys, r.Copies, r.Kept, r.Owed, r.Lost
		}
		w.Takes = r.Seconds
	}
	switch w.State {
	case WorkRefused:
		w.Why, w.Ended = of.plan.Refused, of.plan.At
	case WorkCancelled: // by whom stands beside it
		w.Why, w.Ended = "", maxTime(w.Ended, of.cancel.At)
	case WorkExpired:
		w.Ended = w.Expires
	case WorkPaused:
		w.PausedBy = of.pause.By
	}
	if took := w.Last.Sub(w.Begun); w.State == WorkRunning && w.Why == "" && w.Round < 2 && w.Done > 0 && w.Done < w.All && took > 0 {
		w.Left = max(int64(took.Seconds()*float64(w.All-w.Done)/float64(w.Done)), 1)
	}
}

// progressOf are the progress records of an id, or of the job that answers it.
func (b *works) progressOf(of *oneWork) []replay.Progress {
	if of.job != nil {
		of = b.of(of.job.ID)
	}
	return slices.Collect(maps.Values(of.progress))
}

// nodesOf is how many nodes a job goes to; 0: that is not known.
func (b *works) nodesOf(j *replay.Job) int {
	if b.nodes == nil {
		return 0
	}
	return b.nodes(j)
}

// partsDone are the parts of the round that was begun last, and how many it has on all nodes together. A node goes through its parts in order, and tells of none that
// is empty: what lies before one that is done is done.
func partsDone(progress []replay.Progress, parts, nodes int) (done, all int64, round int) {
	for _, p := range progress {
		round = max(round, p.Round)
	}
	through := map[string]int{} // by node
	for _, p := range progress {
		if p.Part == nil || p.Round != round {
			continue
		}
		n := through[p.Node]
		if p.Done {
			n = max(n, p.Part.N+1)
		}
		through[p.Node] = n
	}
	for _, n := range through {
		done += int64(n)
	}
	return done, int64(parts) * int64(max(nodes, len(through), 1)), round
}

func (w *oneWork) state(progress []replay.Progress, now time.Time) WorkState {
	switch r := w.result; {
	case r != nil && r.Error == "" && r.Clean:
		return WorkDone
	case r != nil && w.cancel != nil:
		return WorkCancelled
	case r != nil && r.Error == "":
		return WorkIncomplete
	case r != nil:
		return WorkFailed
	case w.plan != nil && w.plan.Refused != "":
		return WorkRefused
	case w.cancel != nil:
		return WorkCancelled
	case w.request == nil:
		if slices.ContainsFunc(progress, func(p replay.Progress) bool { return !p.Done }) {
			return WorkRunning
		}
		return WorkDone
	case w.plan == nil && w.job == nil && !w.request.Expires.IsZero() && now.After(w.request.Expires):
		return WorkExpired
	case w.request.Action == replay.Flush && w.pause != nil && w.pause.Action == replay.Pause:
		return WorkPaused
	case w.plan == nil && w.job == nil:
		return WorkWaiting
	}
	return WorkRunning
}
