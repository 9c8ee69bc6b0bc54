package pipeline

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
)

// The window begins a margin before the latest moment at which etcd is known to have held no newer record than was acted on: by this worker's views, and by any
// owner's journal. Where nobody knows, before any newer one was written, by its own word; where that is not known either, with the oldest line.
func TestWindowOfAnEpoch(t *testing.T) {
	const ago = 10 * time.Hour
	margin := defaultWindow + clocksDiffer + lineWide
	for name, c := range map[string]struct {
		views   []time.Duration           // before: since when a view of epoch 7 was confirmed; 0: never
		lines   map[int64][]time.Duration // by epoch: the same of a line
		local   bool
		records []string // of the view that is acted on, from 7 to its last
		want    time.Duration
	}{
		"by the worker's views":              {views: []time.Duration{time.Hour, time.Minute, 0}, want: time.Minute + margin},
		"by somebody's lines":                {lines: map[int64][]time.Duration{7: {time.Hour, 0}, 6: {2 * time.Minute}}, want: 2*time.Minute + margin},
		"by the later of the two":            {views: []time.Duration{time.Hour}, lines: map[int64][]time.Duration{7: {time.Minute}}, want: time.Minute + margin},
		"not by lines of a later record":     {views: []time.Duration{time.Hour}, lines: map[int64][]time.Duration{8: {time.Minute}}, want: time.Hour + margin},
		"nobody knows":                       {want: ago},
		"a file knows nothing of clients":    {views: []time.Duration{time.Minute}, lines: map[int64][]time.Duration{7: {time.Minute}}, local: true, want: ago},
		"by the record's word":               {local: true, records: []string{written(at(3*time.Minute), record(8, twoShards))}, want: 3*time.Minute + clocksDiffer + margin},
		"by the earliest word":               {local: true, records: []string{written(at(5*time.Minute), record(8, twoShards)), written(at(3*time.Minute), record(9, twoShards))}, want: 5*time.Minute + clocksDiffer + margin},
		"a record says nothing":              {local: true, records: []string{record(8, twoShards), written(at(3*time.Minute), record(9, twoShards))}, want: ago},
		"a record was seen by nobody":        {local: true, records: []string{written(at(3*time.Minute), record(9, twoShards))}, want: ago},
		"the record's word is not asked for": {views: []time.Duration{time.Minute}, records: []string{written(at(3*time.Minute), record(8, twoShards))}, want: time.Minute + margin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				r := newRinged(t)
				r.views.Store(viewOf(t, time.Time{}, record(7, twoShards)))
				p := &partition{w: r.w, journal: newJournal(new(atomic.Uint64), defaultWindow, defaultMaxTTL)}
				for _, d := range c.views {
					v := *r.views.View()
					if v.Local = c.local; d > 0 {
						v.Confirmed = now.Add(-d)
					}
					r.w.confirmed.see(&v)
				}
				for epoch, of := range c.lines {
					for _, d := range of {
						v := *viewOf(t, time.Time{}, record(epoch, twoShards))
						if v.Local = c.local; d > 0 {
							v.Confirmed = now.Add(-d)
						}
						p.journal.note(now, &Snapshot{Mapper: r.w.opts.Snapshots.Current().Mapper, View: &v}, sink.Live, 1)
					}
				}
				if c.records == nil {
					c.records = []string{record(8, twoShards)}
				}
				v := viewOf(t, now, append([]string{record(7, twoShards)}, c.records...)...)
				v.Local = c.local
				got, want := p.movedSince(v, 7, v.Topology.Epoch()), now.Add(-c.want)
				if c.want == ago {
					want = time.Time{}
				}
				if got.Unix() != want.Unix() {
					t.Errorf("since %s, want %s", got, want)
				}
			})
		})
	}
}

// at is a moment in the past of a synctest bubble that has just begun.
func at(ago time.Duration) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-ago) }

// The margin is the longer of replay.window and what a delete may take until it is done, with what a commit may wait until it shows.
func TestMarginOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRinged(t)
		v := viewOf(t, time.Now(), record(7, twoShards))
		r.w.confirmed.see(v)
		p := &partition{w: r.w, journal: newJournal(new(atomic.Uint64), defaultWindow, defaultMaxTTL)}
		for window, want := range map[time.Duration]time.Duration{
			time.Minute: time.Minute + 17*time.Second,
			time.Second: settle + defaultMaxLag + 15*time.Second + 17*time.Second,
		} {
			r.w.opts.Window = window
			if got := time.Since(p.movedSince(viewOf(t, time.Now(), record(7, twoShards), record(8, twoShards)), 7, 8)); got != want {
				t.Errorf("with a window of %s it begins %s before, want %s", window, got, want)
			}
		}
	})
}

// A worker remembers what etcd held as long as the journal does.
func TestHeldEpochsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := heldEpochs{keep: time.Hour, at: map[int64]time.Time{}}
		for e := int64(1); e < 100; e++ {
			h.see(viewOf(t, time.Now(), record(e, twoShards)))
			time.Sleep(time.Minute)
		}
		if len(h.at) > 62 || !h.upTo(20).IsZero() || h.upTo(98).IsZero() || !h.upTo(98).Before(h.upTo(99)) {
			t.Errorf("%d are remembered", len(h.at))
		}
	})
}

// Of the offsets taken in there are those that are in flight, however long ago they were issued, and what the log of a former primary's debt has.
func TestWindowHasWhatIsInFlight(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		defer r.holdLog()()
		r.nodes.hold("n4", true)
		r.row(0, "s0") // done
		r.pass(2 * settle)
		r.row(1, "s1") // waits for n4
		r.row(2, "s0")
		r.pass(10 * time.Minute)
		r.see(t, record(7, twoShards))
		r.see(t, record(7, twoShards), record(8, "s0=n1,n2 s1=n4,n3"))
		r.wantDebts(t, "epoch 7-8 1-3")
		r.wantMark(t, 1)
	})
}

// What no row gives is asked for before the epochs count as acted on, for as long as it takes; deletes go on meanwhile. A record that comes before that is done is
// asked for together with the first.
func TestFlushesAreAskedForFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRinged(t)
		f := &fakeRingFlusher{}
		r.w.opts.RingFlusher = f
		r.w.Assign(users, 0, changelog.Restored{})
		r.wantEpochs(t, 7)
		if got := f.asked(); len(got) > 0 {
			t.Errorf("asked for %q by who had nothing to act on", got)
		}
		f.failing(true)
		seven, eight, nine := record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"), record(9, "s0=n2,n1 s1=n4,n3")
		r.see(t, seven, eight)
		r.pass(time.Minute)
		key := r.row(0, "s0")
		r.pass(2 * settle)
		r.wantTimes(t, 2, "n2 "+key)
		r.wantMark(t, 1)
		if s := r.state(t); !slices.Equal(s.Acted.Epochs, []int64{7}) || s.Issued.Epoch != 8 {
			t.Errorf("acted on %v, issued under %d", s.Acted.Epochs, s.Issued.Epoch)
		}
		r.see(t, seven, eight, nine)
		r.pass(time.Minute)
		f.failing(false)
		r.pass(time.Minute)
		r.wantEpochs(t, 7, 8, 9)
		if got, want := f.asked(), []string{"[7] -> [7 8]", "[7] -> [7 8 9]"}; !slices.Equal(got, want) {
			t.Errorf("asked for %q, want %q", got, want)
		}
		r.see(t, eight, nine) // the oldest has expired: nothing is new
		r.wantEpochs(t, 8, 9)
		if got := f.asked(); len(got) != 2 {
			t.Errorf("asked for %q", got)
		}
	})
}

// An owner that asks in vain and loses the partition leaves it to the next, with the debt.
func TestFlushesThatTheNextOwnerAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRinged(t)
		f := &fakeRingFlusher{fail: true}
		r.w.opts.RingFlusher = f
		r.w.Assign(users, 0, changelog.Restored{})
		synctest.Wait()
		r.row(0, "s0")
		r.pass(3 * settle)
		defer r.holdLog()()
		r.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		r.pass(time.Minute)
		o, was, offset := r.next(t)
		g := &fakeRingFlusher{}
		o.w.opts.RingFlusher = g
		o.w.Assign(users, offset, was)
		o.wantDebts(t, "epoch 7-8 0-1")
		o.wantEpochs(t, 7, 8)
		if got := g.asked(); !slices.Equal(got, []string{"[7] -> [7 8]"}) {
			t.Errorf("asked for %q", got)
		}
	})
}

// A node that no record names is not asked any more; when one does again, it is, though its client may learn that later than its partition.
func TestNodeThatIsNamedAgain(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.row(0, "s0")
		r.pass(3 * settle)
		r.wantDebts(t, "node n1 0-")
		r.nodes.mu.Lock()
		probes := r.nodes.probes["n1"]
		r.nodes.probes["n1"] = nil
		r.nodes.mu.Unlock()
		for _, w := range probes {
			w.Acked(sink.Copy{Node: "n1:1"}, &sink.OffError{Node: "n1:1", Why: "no ring record names it"})
		}
		r.wantDebts(t, "node n1 0-") // it is no answer
		r.pass(retryMax)
		r.nodes.turn("n1", true)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
	})
}

// What a node that no record names has not been sent is in no debt: what it held has expired.
func TestNodeThatNobodyNamesOwesNothing(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.row(0, "s0")
		synctest.Wait()
		r.nodes.turn("n1", false)
		r.see(t, record(8, "s0=n5,n2 s1=n3,n4")) // 7 has expired
		r.pass(time.Minute)
		for _, d := range r.state(t).Debts {
			t.Errorf("%+v is owed", d)
		}
		r.wantMark(t, 1)
	})
}

var _ RingFlusher = (*fakeRingFlusher)(nil)
