package pipeline

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// placesTest notes keys of records as a partition does.
type placesTest struct {
	places
	now   time.Time
	under *Snapshot
}

func newPlacesTest(t *testing.T) *placesTest {
	p := &placesTest{now: time.Unix(1_700_000_000, 0), under: &Snapshot{Mapper: keepsMapper{}, View: viewOf(t, time.Time{}, record(7, twoShards))}}
	p.keep, p.held = time.Minute, new(atomic.Int64)
	return p
}

type keepsMapper struct{ mapping.Mapper }

func (p *placesTest) take(offset int64, keys ...string) {
	p.takeHot(offset, 0, keys...)
}

func (p *placesTest) takeHot(offset int64, hot int, keys ...string) {
	var ks []mapping.Key
	for _, k := range keys {
		ks = append(ks, mapping.Key{Text: k, Template: &mapping.Template{Hot: hot}})
	}
	p.note(p.now, offset, p.under, ks)
}

// want wants a record's cells to be those of keys.
func (p *placesTest) want(t *testing.T, at *placesAt, offset int64, keys ...string) {
	t.Helper()
	page, got := p.of(at, offset)
	if page == nil {
		t.Fatalf("offset %d is not known", offset)
	}
	var want []sink.Cell
	for _, k := range keys {
		cell := sink.Anywhere
		if k != "?" {
			cell = p.under.View.Topology.Cell(k)
		}
		want = append(want, cell)
	}
	if !slices.Equal(got, want) {
		t.Errorf("offset %d: %d, want %d of %q", offset, got, want, keys)
	}
}

func (p *placesTest) wantUnknown(t *testing.T, offset int64) {
	t.Helper()
	if page, _ := p.of(&placesAt{}, offset); page != nil {
		t.Errorf("offset %d is known", offset)
	}
}

func TestPlaces(t *testing.T) {
	p, at := newPlacesTest(t), &placesAt{}
	p.take(10, "user:1", "user:2")
	p.take(11)
	p.takeHot(14, 3, "user:3") // its copies are elsewhere, and 12 and 13 were not noted
	p.take(15, "user:4")
	p.wantUnknown(t, 9)
	p.want(t, at, 10, "user:1", "user:2")
	p.want(t, at, 11)
	p.want(t, at, 12, "?")
	p.want(t, at, 14, "?")
	p.want(t, at, 15, "user:4")
	p.want(t, at, 10, "user:1", "user:2") // who goes back begins anew
	p.wantUnknown(t, 16)
	p.take(16, make([]string, cellsOfRecord+1)...) // more than are told apart
	p.want(t, at, 16, "?")
	p.take(5000, "user:5") // far on
	p.wantUnknown(t, 17)
	p.wantUnknown(t, 4999)
	p.want(t, at, 5000, "user:5")
	p.take(20, "user:6") // what was before is of another log
	p.wantUnknown(t, 10)
	p.wantUnknown(t, 5000)
	p.want(t, &placesAt{}, 20, "user:6")
}

// What is mapped or placed otherwise goes to a page of its own.
func TestPlacesUnderAnotherSnapshot(t *testing.T) {
	p := newPlacesTest(t)
	p.take(0, "user:1")
	first, _ := p.of(&placesAt{}, 0)
	p.under = &Snapshot{Mapper: first.mapper, View: viewOf(t, time.Time{}, record(7, twoShards), record(8, "s0=n2 s1=n3,n4"))}
	p.take(1, "user:1")
	if second, _ := p.of(&placesAt{}, 1); second == first || second.ring != p.under.View.Topology {
		t.Error("another ring")
	}
	p.under = &Snapshot{Mapper: struct{ keepsMapper }{}, View: p.under.View}
	p.take(2, "user:1")
	if third, _ := p.of(&placesAt{}, 2); third.mapper != p.under.Mapper {
		t.Error("other mappings")
	}
	p.want(t, &placesAt{}, 0, "user:1")
}

// Pages are dropped when they are old, when all partitions together hold too much, and at the end.
func TestPlacesAreBounded(t *testing.T) {
	p := newPlacesTest(t)
	other := &places{keep: time.Minute, held: p.held}
	other.note(p.now, 0, p.under, nil)
	for o := range int64(mostPlaces/pageBytes+10) * placesOfPage {
		p.take(o, "user:1")
	}
	if held := p.held.Load(); held > mostPlaces+pageBytes {
		t.Errorf("%d bytes", held)
	}
	p.wantUnknown(t, 0)
	p.now = p.now.Add(p.keep + time.Second)
	p.tidy(p.now)
	if held := p.held.Load(); held != pageBytes {
		t.Errorf("%d bytes when all is old but what the other has", held)
	}
	p.held.Store(mostPlaces) // of others
	p.take(1<<30, "user:1")
	p.wantUnknown(t, 1<<30)
	other.end()
	if held := p.held.Load(); held != mostPlaces-pageBytes {
		t.Errorf("%d bytes at the end", held)
	}
}

// A pass for a promotion decodes the records alone of which a key may have moved, and issues what it would without places.
func TestPromotionDecodesWhatMoved(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		mapped := r.countMapping()
		for o := range int64(40) {
			r.row(o, []string{"s0", "s1"}[min(o%8, 1)]) // every eighth on s0
		}
		r.pass(3 * settle)
		r.nodes.take()
		mapped.n.Store(0)
		r.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"))
		r.pass(gather + 2*settle)
		for o := int64(0); o < 40; o += 8 {
			r.wantTimes(t, 2, "n5 "+r.key(o, "s0"))
		}
		r.wantTimes(t, 0, "n3 "+r.key(1, "s1"))
		if n := mapped.n.Load(); n < 5 || n > 8 {
			t.Errorf("%d records of 40 were mapped, 5 are on s0", n)
		}
		r.wantDebts(t)
	})
}

// A key that became hot behind its change has copies that lie elsewhere than it does: these have moved, though it has stayed.
func TestPromotionMeetsCopiesOfAKeyThatIsHotNow(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		id := idWith(t, func(shard func(key string) string, id string) bool {
			return shard("user:"+id) == "s1" && shard("user:"+id+"#2") == "s0"
		})
		key, copied := "user:"+id, "user:"+id+"#2"
		r.send(0, update(id, "a@x.test", "a@x.test"))
		r.pass(3 * settle)
		r.nodes.take()
		v := *viewOf(t, time.Now(), record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"))
		v.Hot = sink.NewHotKeys(2, map[string]int{key: 8})
		r.views.Store(&v)
		r.pass(gather + 5*settle)
		if n := r.nodes.count("n5 " + copied); n < 4 { // the pass's two rounds, and two for the key that is hot
			t.Errorf("%s was deleted %d times", copied, n)
		}
		r.wantDebts(t)
	})
}

// What an owner before issued under mappings of its own is decoded, whatever today's give: their key may have moved, though today's has stayed.
func TestPromotionUnderTheMappingsOfTheOwnerBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRinged(t)
		r.reload(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}:v2']}\n")
		r.w.Assign(users, 0, changelog.Restored{})
		id := idWith(t, func(shard func(key string) string, id string) bool {
			return shard("user:"+id) == "s1" && shard("user:"+id+":v2") == "s0"
		})
		r.send(0, update(id, "a@x.test", "a@x.test"))
		r.pass(3 * settle)
		next, was, _ := r.next(t)
		next.archive.sets = r.archive.sets
		next.keepSet()
		next.w.Assign(users, 0, was) // its commit was lost
		next.send(0, update(id, "a@x.test", "a@x.test"))
		next.pass(3 * settle)
		next.nodes.take()
		next.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"))
		next.pass(gather + 2*settle)
		next.wantTimes(t, 2, "n5 user:"+id+":v2")
		next.wantDebts(t)
	})
}

// idWith is an id for which is says so, of the shards in which keys lie.
func idWith(t *testing.T, is func(shard func(key string) string, id string) bool) string {
	shard := func(key string) string {
		_, shard := twoShardRing().Locate(key)
		return shard
	}
	for n := range 1000 {
		if id := strconv.Itoa(n); is(shard, id) {
			return id
		}
	}
	t.Fatal("there is none")
	return ""
}

// countMapping counts the records that are mapped from now on.
func (r *rig) countMapping() *countingMapper {
	m := &countingMapper{Mapper: r.w.opts.Snapshots.Current().Mapper}
	r.w.opts.Snapshots.SetMapper(m)
	return m
}

type countingMapper struct {
	mapping.Mapper
	n atomic.Int64
}

func (m *countingMapper) Keys(row *cdc.RowChange, res *mapping.Result) {
	m.n.Add(1)
	m.Mapper.Keys(row, res)
}
