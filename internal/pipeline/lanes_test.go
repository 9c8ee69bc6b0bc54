package pipeline

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/sink"
)

// Two passes of one lane, of which one is hours back, as one that pays a primary and one that follows from a promotion: the next promotion reads where they were, and
// nothing of what lies between.
func TestWindowDoesNotReadBetweenPassesOfOneLane(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for o := range int64(5) {
			r.row(o, "s0")
		}
		r.row(nearby, "s0")
		r.row(2*nearby, "s0")
		r.pass(2 * time.Minute)
		r.see(t, record(7, twoShards))
		p, today := r.w.partition(users), r.w.opts.Snapshots.Current()
		for _, o := range []int64{3, 2 * nearby, 2} {
			p.journal.note(time.Now(), today, sink.Urgent, o)
		}
		r.pass(time.Second)
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		r.pass(gather + 2*settle)
		if got := r.past.ranges(); !slices.Equal(got, []string{"2-4", "131072-131073"}) {
			t.Errorf("read %q", got)
		}
		r.wantTimes(t, 2, "n2 "+r.key(2, "s0"), "n2 "+r.key(3, "s0"), "n2 "+r.key(2*nearby, "s0"))
		r.wantDebts(t)
	})
}

// A line has few spans of a lane, which hold all that was noted; written and read again they are the same.
func TestSpansOfALane(t *testing.T) {
	const far = nearby + 1
	span := func(lowest, highest int64) LaneSpan { return LaneSpan{sink.Debts, lowest, highest} }
	for name, c := range map[string]struct {
		offsets []int64
		want    []LaneSpan
	}{
		"near":        {[]int64{5, 5 + nearby, 3}, []LaneSpan{span(3, 5+nearby)}},
		"apart":       {[]int64{5, 5 + far, 4, 6 + far}, []LaneSpan{span(4, 5), span(5+far, 6+far)}},
		"to the next": {[]int64{0, 4 * far, 3 * far, far - 1}, []LaneSpan{span(0, far-1), span(3*far, 3*far), span(4*far, 4*far)}},
		"too many":    {[]int64{0, 2 * far, 4 * far, 6 * far, 9 * far, 20 * far}, []LaneSpan{span(0, 0), span(2*far, 2*far), span(4*far, 4*far), span(6*far, 20*far)}},
	} {
		t.Run(name, func(t *testing.T) {
			var l JournalLine
			l.span(sink.Live, 1, 1)
			for _, o := range c.offsets {
				if !l.span(sink.Debts, o, o) || l.span(sink.Debts, o, o) {
					t.Errorf("%d is news once", o)
				}
			}
			l.span(sink.Flush, 1, 1)
			var again JournalLine
			if b, err := json.Marshal(l); err != nil || json.Unmarshal(b, &again) != nil {
				t.Fatal(err)
			}
			for _, l := range []JournalLine{l, again} {
				got := l.Lanes[1 : len(l.Lanes)-1]
				slices.SortFunc(got, func(a, b LaneSpan) int { return int(a.Lowest - b.Lowest) })
				if diff := cmp.Diff(c.want, got); diff != "" || l.Lanes[0].Lane != sink.Live || l.Lanes[len(l.Lanes)-1].Lane != sink.Flush {
					t.Errorf("%+v\n%s", l.Lanes, diff)
				}
			}
		})
	}
}
