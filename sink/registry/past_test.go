package registry

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

var aDay = Options{MaxTTL: 24 * time.Hour, Lag: time.Minute}

// ringOf has one shard, on that node.
func ringOf(epoch int64, node string, previous bool) *sink.Record {
	r := &sink.Record{Epoch: epoch, Kind: sink.KindPoints160, Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: node}}}}
	if previous {
		r.Previous = &sink.Previous{Epoch: epoch - 1, Shards: r.Shards}
	}
	return r
}

func newTestBoard(o Options) *board {
	_, log := newReports()
	return newBoard(o, log)
}

func (b *board) sees(t *testing.T, r *sink.Record) {
	t.Helper()
	b.mu.Lock()
	b.past.add(Sight{r, time.Now()})
	b.mu.Unlock()
	b.put()
}

func nodes(v *View) string {
	var out []string
	for _, c := range v.Topology.AppendCopies(nil, "user:1", 0) {
		out = append(out, c.Node)
	}
	return fmt.Sprint(out)
}

// Copies are at every node that owned them within max_ttl, counted from when the record was replaced, and ring.lag for clients that did
// not know yet.
func TestCopiesOfFormerRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBoard(aDay)
		b.sees(t, ringOf(1, "a:1", false))
		time.Sleep(100 * 24 * time.Hour) // it stood for long, and was good until
		b.sees(t, ringOf(2, "b:1", false))
		time.Sleep(time.Hour)
		b.sees(t, ringOf(3, "c:1", false))
		if got := nodes(b.View()); got != "[c:1 b:1 a:1]" {
			t.Errorf("got %s", got)
		}
		time.Sleep(23*time.Hour + time.Minute - 1)
		b.put()
		if got := b.View().Topology.Nodes(); !slices.Equal(got, []string{"a:1", "b:1", "c:1"}) {
			t.Errorf("just before the end: got %v", got)
		}
		time.Sleep(time.Nanosecond)
		b.put()
		if got := nodes(b.View()); got != "[c:1 b:1]" || len(b.View().Sights) != 2 {
			t.Errorf("after it: got %s", got)
		}
		time.Sleep(time.Hour)
		b.put()
		if got := nodes(b.View()); got != "[c:1]" {
			t.Errorf("an hour later: got %s", got)
		}
	})
}

func TestAViewKeepsItsTopology(t *testing.T) {
	b := newTestBoard(aDay)
	b.sees(t, ringOf(1, "a:1", false))
	first := b.View()
	b.put()
	if b.View().Topology != first.Topology {
		t.Error("nothing changed, and the topology is another")
	}
	b.sees(t, ringOf(2, "b:1", false))
	if len(first.Sights) != 1 || first.Topology.Epoch() != 1 {
		t.Error("the first view was changed")
	}
}

func TestCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := time.Now()
		at := func(r *sink.Record, at time.Time) *sink.Record { r.At = at; return r }
		seeding := ringOf(1, "a:1", false)
		seeding.Shards[0].Replicas = []sink.Replica{{Addr: "b:1", Seeding: true}}
		for name, c := range map[string]struct {
			sights []Sight
			want   time.Time
		}{
			"a first record":                  {[]Sight{{ringOf(1, "a:1", false), day}}, time.Time{}},
			"a resize that stands":            {[]Sight{{ringOf(1, "a:1", false), day}, {ringOf(2, "a:1", true), day.Add(time.Hour)}}, time.Time{}},
			"a resize that is over":           {[]Sight{{ringOf(2, "a:1", true), day}, {ringOf(3, "a:1", false), day.Add(time.Hour)}}, day.Add(time.Hour + time.Minute)},
			"and a promotion after it":        {[]Sight{{ringOf(2, "a:1", true), day}, {ringOf(3, "a:1", false), day.Add(time.Hour)}, {ringOf(4, "b:1", false), day.Add(2 * time.Hour)}}, day.Add(time.Hour + time.Minute)},
			"a replica was seeded":            {[]Sight{{seeding, day}, {ringOf(2, "a:1", false), day.Add(time.Hour)}}, day.Add(time.Hour + time.Minute)},
			"an epoch that nobody saw":        {[]Sight{{ringOf(1, "a:1", false), day}, {ringOf(3, "a:1", false), day.Add(time.Hour)}}, day.Add(time.Hour + time.Minute)},
			"what was before is not known":    {[]Sight{{ringOf(7, "a:1", false), day}}, day.Add(time.Minute)},
			"the record says since when":      {[]Sight{{at(ringOf(7, "a:1", false), day.Add(-time.Hour)), day}}, day.Add(-time.Hour + clocksDiffer + time.Minute)},
			"the manager's clock is too fast": {[]Sight{{at(ringOf(7, "a:1", false), day.Add(time.Hour)), day}}, day.Add(time.Minute)},
		} {
			var p past
			for _, s := range c.sights {
				p.add(s)
			}
			if got := p.carried(aDay); !got.Equal(c.want) {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
		}
	})
}

// What other workers saw: a newer record comes into force, an older one is a former one, and the registry's is taken again when it
// catches up.
func TestFeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.json")
	replace(t, path, record(3))
	var kept []int64
	o := aDay
	o.Keep = func(s Sight) { kept = append(kept, s.Record.Epoch) }
	reports, log := newReports()
	w := NewFile(path, "", o, log)
	now := time.Now()
	w.Feed(Saved{Sights: []Sight{{ringOf(5, "e:1", false), now}, {ringOf(2, "b:1", false), now.Add(-time.Hour)}}})
	<-w.Ready() // before the file was looked at: a start without a registry works
	start(t, w)
	reports.await(t, "epoch 3 is older than 5")
	v := w.View()
	if got := nodes(v); got != "[e:1 b:1]" || v.Topology.Epoch() != 5 || !v.Confirmed.IsZero() {
		t.Errorf("got %s, epoch %d, confirmed %v", got, v.Topology.Epoch(), v.Confirmed)
	}
	w.Feed(Saved{Sights: []Sight{{ringOf(4, "d:1", false), now.Add(-time.Minute)}}})
	if got := nodes(w.View()); got != "[e:1 d:1 b:1]" {
		t.Errorf("got %s", got)
	}
	before := w.View()
	w.Feed(Saved{Sights: before.Sights})
	if w.View() != before {
		t.Error("the same again made another view")
	}
	replace(t, path, record(6))
	v = awaitEpoch(t, w, 6)
	await(t, w, "a confirmation", func(v *View) bool { return !v.Confirmed.IsZero() })
	if len(v.Sights) != 4 || !slices.Equal(kept, []int64{6}) {
		t.Errorf("got %d sights, kept %v", len(v.Sights), kept)
	}
}

// A confirmation is of the record in force: what the registry holds is no more, once somebody has seen a newer one.
func TestConfirmIsOfTheRecordInForce(t *testing.T) {
	b := newTestBoard(aDay)
	b.sees(t, ringOf(1, "a:1", false))
	b.confirm(time.Unix(5, 0), 1, 7)
	b.Feed(Saved{Sights: []Sight{{ringOf(2, "b:1", false), time.Now()}}})
	b.confirm(time.Unix(6, 0), 1, 9)
	b.put()
	if v := b.View(); !v.Confirmed.Equal(time.Unix(5, 0)) || !v.Hot.Covers(9) || v.Hot.Covers(10) {
		t.Errorf("confirmed %v, covers 9: %v", v.Confirmed, v.Hot.Covers(9))
	}
}

func TestHotKeysThatLeaveAndShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBoard(aDay)
		b.sees(t, ringOf(1, "a:1", false))
		shows := func(when string, revision int64, want string) {
			t.Helper()
			b.put()
			h, got := b.View().Hot, map[string]int{}
			for key := range h.Entries {
				got[key] = h.Copies(key)
			}
			if fmt.Sprint(got) != want || h.Revision() != revision {
				t.Errorf("%s: got %v at %d, want %s at %d", when, got, h.Revision(), want, revision)
			}
		}
		b.setHot(map[string]offered{"a": {3, 8}, "b": {4, 8}}, 10)
		shows("at first", 4, "map[a:8 b:8]")
		time.Sleep(time.Hour)
		b.setHot(map[string]offered{"a": {12, 4}}, 12)
		shows("a shrank, b left", 12, "map[a:8 b:8]")
		if got := fmt.Sprint(maps.Collect(b.View().Hot.Each)); got != "map[a:4]" || b.View().Hot.Len() != 1 {
			t.Errorf("the registry holds %s", got)
		}
		time.Sleep(23 * time.Hour)
		b.setHot(map[string]offered{"a": {13, 2}, "c": {13, 1}}, 13)
		time.Sleep(time.Hour + time.Minute - 1)
		shows("almost a day after the first change", 13, "map[a:8 b:8 c:1]")
		time.Sleep(time.Nanosecond)
		shows("a day after it", 13, "map[a:8 c:1]") // a shrank again, and had 4 until then
		time.Sleep(23 * time.Hour)
		shows("a day after the second", 13, "map[a:2 c:1]")
		b.setHot(map[string]offered{"a": {20, 2}, "c": {13, 1}}, 20)
		shows("written again as it was", 20, "map[a:2 c:1]")
	})
}

func TestHotKeysOfOtherWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBoard(aDay)
		b.sees(t, ringOf(1, "a:1", false))
		b.setHot(map[string]offered{"a": {3, 8}}, 10)
		soon := time.Now().Add(time.Hour)
		b.Feed(Saved{HotRevision: 20, Hot: map[string]sink.HotEntry{
			"a":    {Copies: 2, Revision: 15, Most: 2},              // who wrote it knew of no more
			"b":    {Copies: 4, Revision: 16, Most: 4},              // we are behind
			"gone": {Copies: 0, Revision: 9, Most: 16, Until: soon}, // before our time
			"old":  {Copies: 6, Revision: 2, Most: 6},
		}})
		h := b.View().Hot
		if h.Copies("a") != 8 || h.Copies("b") != 4 || h.Copies("gone") != 16 || h.Copies("old") != 6 || h.Revision() != 20 {
			t.Errorf("got %+v", maps.Collect(h.Entries))
		}
		b.setHot(map[string]offered{"a": {3, 8}}, 11) // still behind: b is not taken for gone, old is
		b.put()
		got := maps.Collect(b.View().Hot.Entries)
		if got["b"].Copies != 4 || got["old"].Copies != 0 || got["old"].Most != 6 {
			t.Errorf("got %+v", got)
		}
		time.Sleep(2 * time.Hour)
		b.put()
		if h := b.View().Hot; h.Copies("gone") != 0 || h.Copies("a") != 8 {
			t.Errorf("two hours later: got %+v", maps.Collect(h.Entries))
		}
		before := b.View()
		b.Feed(Saved{HotRevision: 20, Hot: maps.Collect(before.Hot.Entries)})
		if b.View() != before {
			t.Error("the same again made another view")
		}
	})
}
