package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
	"invalidator/replay"
)

const (
	// worksBack is how far back a fleet's works are looked at: what failed before is not told any more.
	worksBack = 24 * time.Hour
	// waitsLong is after how long a request that nobody has begun is told.
	waitsLong = time.Minute
	// parkedBack is how far back parked records are counted, and parkedEvery how often at most.
	parkedBack  = 24 * time.Hour
	parkedEvery = 30 * time.Second
)

// Parked are the records of the last day on the dead-letter topic about which nobody has decided. Its JSON form is stable.
type Parked struct {
	Records int       `json:"parked"`
	Last    time.Time `json:"last,omitzero"` // when the last one was parked
}

// readWorks adds what is done again, and keeps what has ended lately for judgeWorks.
func (r *FleetReader) readWorks(ctx context.Context, f *Fleet, st *changelog.State) error {
	var err error
	if r.works != nil {
		err = r.works.read(ctx)
	} else if r.works, err = readWorks(ctx, r.kafka, r.cl, r.names, time.Now().Add(-worksBack)); err != nil {
		r.works = nil
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) { // nobody ran yet
		r.works = nil
		return nil
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil: // the rest is worth showing all the same
		f.warn("replays and flushes", err.Error())
	}
	if r.works == nil {
		return nil
	}
	view, err := savedView(st, r.group)
	if err != nil {
		f.Findings = append(f.Findings, failed("ring", err)...)
	}
	r.works.works.nodes = flushNodes(view)
	f.Works = r.works.works.list(time.Now())
	return nil
}

// judgeWorks tells of works that need somebody, and leaves those that are over out.
func (f *Fleet) judgeWorks(now time.Time) {
	working := slices.ContainsFunc(f.Processes, func(p Process) bool { return p.Role == roleWorker && !p.Lost })
	for i := range f.Works {
		w := &f.Works[i]
		where := w.Kind + " " + w.ID
		show := "(invalidator " + w.Kind + " status " + w.ID + ")"
		if w.Kind == KindEpoch {
			show = "(invalidator replay status " + w.ID + ")"
		}
		switch {
		case w.State == WorkWaiting && working && now.Sub(w.At) > waitsLong:
			f.warn(where, fmt.Sprintf("no worker has begun it for %s %s", now.Sub(w.At).Round(time.Second), show))
		case !w.State.Ended(), w.State.Good(), w.State == WorkCancelled && w.Cause == nil, now.Sub(w.Ended) > worksBack:
		case w.Cause != nil && !f.doneSince(w):
			f.fail(where, fmt.Sprintf("%s, and what it was to delete may be stale: ask for it by hand (invalidator flush %s) %s", ended(w), flushWords(w.Target), show))
		case w.Cause == nil && !f.doneSince(w):
			f.warn(where, ended(w)+" "+show)
		}
	}
	f.Works = slices.DeleteFunc(f.Works, func(w Work) bool { return w.State.Ended() })
}

// ended says how a work ended that was not done.
func ended(w *Work) string {
	text := map[WorkState]string{WorkIncomplete: "it was not done to its end", WorkFailed: "it failed", WorkRefused: "it was refused", WorkCancelled: "it was cancelled",
		WorkExpired: "it expired: no worker began it in time"}[w.State]
	switch {
	case w.Why != "":
		text += ": " + w.Why
	case w.Lost > 0:
		text += fmt.Sprintf(": the log no longer held %d records of it", w.Lost)
	}
	return text
}

// flushWords are what follows "invalidator flush" for the same keys.
func flushWords(t replay.Target) string {
	switch {
	case t.Pool != "" && t.Shard != "":
		return "pool " + t.Pool + " --shard " + t.Shard
	case t.Pool != "":
		return "pool " + t.Pool
	case t.Node != "":
		return "node " + t.Node
	}
	return "node, for each that gained keys"
}

// doneSince says whether another work of the same kind and target was asked for after it, and is done, or on its way.
func (f *Fleet) doneSince(w *Work) bool {
	return slices.ContainsFunc(f.Works, func(o Work) bool {
		later := o.At.After(w.At) && o.Kind == w.Kind && !o.DryRun && (o.State.Good() || !o.State.Ended())
		return later && (o.Target.String() == w.Target.String() || w.Target.Pool != "" && o.Target.String() == replay.Target{Pool: w.Target.Pool}.String())
	})
}

func (f *Fleet) warn(where, what string) {
	f.Findings = append(f.Findings, Finding{string(cdc.SeverityWarning), where, what})
}

// readGaps adds the gaps that stand. One that nobody has decided about needs a person. Works are there, those that have ended lately included.
func (f *Fleet) readGaps(st *changelog.State, now time.Time) {
	all, err := gap.List(st)
	if err != nil {
		f.Findings = append(f.Findings, failed("gap", err)...)
	}
	works := worksByID(f.Works)
	for _, c := range all {
		w := fillFlush(c, works)
		switch {
		case c.State() == gap.Open:
			f.fail("gap "+c.ID, fmt.Sprintf("%s (invalidator gap show %s)", c.Why, c.ID))
		case c.State() == gap.Accepted:
		case w == nil || w.State.Good() || w.State.Ended() && (f.doneSince(w) || now.Sub(w.Ended) > worksBack):
			continue
		case !w.State.Ended(): // else it is told of the flush itself
			f.warn("gap "+c.ID, fmt.Sprintf("it is closed, and until the flush that it asked for is done what it lost may be stale: that is %s (invalidator flush status %s)", w.State, w.ID))
		}
		f.Gaps = append(f.Gaps, c)
	}
}

// readParked counts parked records.
func (r *FleetReader) readParked(ctx context.Context, f *Fleet, st *changelog.State) error {
	if time.Since(r.parkedAt) < parkedEvery {
		f.Parked = r.parked
		return nil
	}
	var now Parked
	err := changelog.ReadTopic(ctx, r.kafka, r.names.DeadLetter, time.Now().Add(-parkedBack), false, func(rec changelog.TopicRecord) error {
		at, ours := parkedAt(rec)
		if ours && !decided(st, rec, at) {
			now.Records, now.Last = now.Records+1, maxTime(now.Last, at)
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil: // the rest is worth showing all the same
		f.warn("dead letters", err.Error())
		return nil
	}
	r.parked, r.parkedAt = now, time.Now()
	f.Parked = now
	return nil
}

// parkedAt is when a record of the dead-letter topic was parked; false: not by us.
func parkedAt(r changelog.TopicRecord) (at time.Time, ours bool) {
	at = r.Time
	for _, h := range r.Headers {
		switch h.Key {
		case changelog.HeaderTopic:
			ours = true
		case changelog.HeaderTime:
			if t, err := time.Parse(time.RFC3339Nano, string(h.Value)); err == nil {
				at = t
			}
		}
	}
	return at, ours
}

// decided says whether somebody has decided about a parked record. On a topic that was made again the same place is another record's.
func decided(st *changelog.State, r changelog.TopicRecord, at time.Time) bool {
	e, found := st.Get(changelog.StateKey("deadletter", strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Offset, 10)))
	var d changelog.Decision
	return found && changelog.DecodeStrict(e.Value, 1, &d) == nil && d.Parked.Equal(at)
}

func (f *Fleet) judgeParked() {
	if n := f.Parked.Records; n > 0 {
		f.warn("dead letters", fmt.Sprintf("%s parked in the last day, the last at %s: what they would have deleted may be stale (invalidator deadletter list)",
			plural(n, "record was", "records were"), f.Parked.Last.UTC().Format(time.DateTime)))
	}
}

func plural(n int, one, more string) string {
	if n == 1 {
		more = one
	}
	return fmt.Sprintf("%d %s", n, more)
}
