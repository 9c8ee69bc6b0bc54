package registry

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/sink"
)

func TestEpochsAndBetween(t *testing.T) {
	b := newTestBoard(aDay)
	for _, epoch := range []int64{3, 4, 6} {
		b.sees(t, ringOf(epoch, fmt.Sprint("n", epoch, ":1"), false))
	}
	v := b.View()
	if got := v.Epochs(); !slices.Equal(got, []int64{3, 4, 6}) {
		t.Errorf("epochs: got %v", got)
	}
	for _, c := range []struct {
		a, b  int64
		want  []int64
		whole bool
	}{
		{3, 4, []int64{3, 4}, true},
		{4, 4, []int64{4}, true},
		{4, 6, []int64{4, 6}, false},
		{2, 4, []int64{3, 4}, false},
		{6, 7, []int64{6}, false},
		{5, 5, nil, false},
		{7, 9, nil, false},
		{6, 5, nil, false}, // a registry that was restored
	} {
		records, whole := v.Between(c.a, c.b)
		var got []int64
		for _, r := range records {
			got = append(got, r.Epoch)
		}
		if !slices.Equal(got, c.want) || whole != c.whole {
			t.Errorf("between %d and %d: got %v, whole %v; want %v, %v", c.a, c.b, got, whole, c.want, c.whole)
		}
	}
}

// A hole is there until what was placed in it has expired: max_ttl after the record that follows it was written, and ring.lag for clients that
// did not know that yet.
func TestHoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := time.Now()
		until := day.Add(aDay.stays())
		at := func(epoch int64, at time.Time) *sink.Record {
			r := ringOf(epoch, "a:1", false)
			r.At = at
			return r
		}
		for name, c := range map[string]struct {
			sights []Sight
			want   []Hole
		}{
			"from the first record on":            {[]Sight{{at(1, time.Time{}), day}, {at(2, time.Time{}), day}}, nil},
			"what was before is not known":        {[]Sight{{at(7, time.Time{}), day}}, []Hole{{0, 7, until}}},
			"an epoch that nobody saw":            {[]Sight{{at(1, time.Time{}), day}, {at(3, time.Time{}), day}}, []Hole{{1, 3, until}}},
			"two holes":                           {[]Sight{{at(2, time.Time{}), day.Add(-time.Hour)}, {at(9, time.Time{}), day}}, []Hole{{0, 2, until.Add(-time.Hour)}, {2, 9, until}}},
			"the record says when it was written": {[]Sight{{at(7, day.Add(-time.Hour)), day}}, []Hole{{0, 7, until.Add(clocksDiffer - time.Hour)}}},
			"it was written long ago":             {[]Sight{{at(7, day.Add(-48*time.Hour)), day}}, nil},
		} {
			var p past
			for _, s := range c.sights {
				p.add(s)
			}
			v := View{Unseen: p.holes(aDay)}
			if diff := cmp.Diff(c.want, v.Holes(day)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			for _, h := range c.want {
				if got := v.Holes(h.Until.Add(-1)); !slices.Contains(got, h) {
					t.Errorf("%s: just before its end %v is not there", name, h)
				}
				if got := v.Holes(h.Until); slices.Contains(got, h) {
					t.Errorf("%s: at its end %v is there", name, h)
				}
			}
		}
	})
}

// What a node gains under a record is to be flushed while a hole lies below it; what any known record gave it before is not.
func TestGained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBoard(aDay)
		gained := func(epoch int64, want string) {
			t.Helper()
			got := ""
			for _, g := range b.View().Gained(epoch) {
				got += g.Node + " "
				if place := b.View().Topology.Record().Place("user:1"); len(g.Ranges) != 1 || !g.Ranges[0].Has(place) {
					t.Errorf("epoch %d: %s gains %v", epoch, g.Node, g.Ranges)
				}
			}
			if got != want {
				t.Errorf("epoch %d: gained by %q, want %q", epoch, got, want)
			}
		}
		b.sees(t, ringOf(1, "a:1", false))
		time.Sleep(time.Hour)
		b.sees(t, ringOf(2, "b:1", false))
		gained(2, "") // no hole
		time.Sleep(time.Hour)
		b.sees(t, ringOf(4, "c:1", false)) // nobody saw epoch 3: c may have been an owner there too, and away since
		gained(2, "")
		gained(4, "c:1 ")
		time.Sleep(time.Hour)
		b.sees(t, ringOf(5, "a:1", false))
		gained(5, "") // it had this before, and so all deletes for a day
		time.Sleep(time.Hour)
		b.sees(t, ringOf(6, "d:1", false))
		gained(6, "d:1 ")
		gained(7, "") // not known
		time.Sleep(24 * time.Hour)
		b.put()
		b.sees(t, ringOf(7, "e:1", false))
		gained(7, "") // what was placed under epoch 3 has expired

		b.sees(t, ringOf(9, "f:1", false))
		gained(9, "f:1 ")
		b.Feed(Saved{Sights: []Sight{{ringOf(8, "f:1", false), time.Now()}}})
		gained(9, "") // another worker had seen it: it is no hole
		if holes := b.View().Holes(time.Now()); len(holes) != 0 {
			t.Errorf("holes: %v", holes)
		}
	})
}

// A partition may act on a record long after it came: what counts is whether there was a hole when it came.
func TestGainedIsAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBoard(aDay)
		b.sees(t, ringOf(1, "a:1", false))
		b.sees(t, ringOf(3, "a:1", false))
		time.Sleep(24 * time.Hour)
		b.sees(t, ringOf(4, "b:1", false))
		time.Sleep(20 * time.Hour)
		b.put()
		if v := b.View(); len(v.Gained(4)) != 1 || len(v.Holes(time.Now())) != 0 {
			t.Errorf("gained %v, holes %v", v.Gained(4), v.Holes(time.Now()))
		}
	})
}

func TestOnlyFilesAreLocal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.json")
	replace(t, path, record(1))
	_, log := newReports()
	w := NewFile(path, "", aDay, log)
	start(t, w)
	<-w.Ready()
	if !w.View().Local {
		t.Error("a ring file's view is not local")
	}
	b := NewEtcd(EtcdConfig{}, aDay, log)
	b.sees(t, ringOf(1, "a:1", false))
	if b.View().Local {
		t.Error("etcd's view is local")
	}
}

// Views of the same records share what was found.
func TestGainedIsFoundOnce(t *testing.T) {
	b := newTestBoard(aDay)
	b.sees(t, ringOf(1, "a:1", false))
	b.sees(t, ringOf(3, "b:1", false))
	first := b.View()
	b.put()
	if x, y := first.Gained(3), b.View().Gained(3); len(x) != 1 || &x[0] != &y[0] {
		t.Error("it was found twice")
	}
	alone := View{Topology: first.Topology, Sights: first.Sights, Unseen: first.Unseen}
	if diff := cmp.Diff(first.Gained(3), alone.Gained(3)); diff != "" {
		t.Errorf("a view that keeps nothing (-want +got):\n%s", diff)
	}
}
