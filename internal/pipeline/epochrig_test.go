package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// record is a ring record of shards written "s0=n1,n2 s1=n3,n4": the primary first, and a node with a * is being seeded.
func record(epoch int64, shards string) string {
	return fmt.Sprintf(`{"epoch":%d,"kind":"points160","shards":%s}`, epoch, shardsOf(shards))
}

// resizing adds what stands as previous to a record.
func resizing(record string, epoch int64, shards string) string {
	return strings.TrimSuffix(record, "}") + fmt.Sprintf(`,"previous":{"epoch":%d,"shards":%s}}`, epoch, shardsOf(shards))
}

// written adds when a record was.
func written(at time.Time, record string) string {
	return strings.TrimSuffix(record, "}") + fmt.Sprintf(`,"at":%q}`, at.Format(time.RFC3339Nano))
}

func shardsOf(text string) string {
	var shards []string
	for _, s := range strings.Fields(text) {
		id, nodes, _ := strings.Cut(s, "=")
		names := strings.Split(nodes, ",")
		replicas := []string{}
		for _, n := range names[1:] {
			name, seeding := strings.CutSuffix(n, "*")
			replicas = append(replicas, fmt.Sprintf(`{"addr":"%s:1","seeding":%v}`, name, seeding))
		}
		shards = append(shards, fmt.Sprintf(`{"id":%q,"weight":1,"primary":{"addr":"%s:1"},"replicas":[%s]}`, id, names[0], strings.Join(replicas, ",")))
	}
	return "[" + strings.Join(shards, ",") + "]"
}

// viewOf is a view of records, the last of which is in force, that was confirmed at a time; zero: never.
func viewOf(t testing.TB, confirmed time.Time, records ...string) *registry.View {
	t.Helper()
	var all []*sink.Record
	v := &registry.View{Hot: sink.NewHotKeys(1, nil), Confirmed: confirmed}
	for _, text := range records {
		rec, err := sink.ParseRecord("ring.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
		v.Sights = append(v.Sights, registry.Sight{Record: rec, Seen: time.Now()})
	}
	var err error
	if v.Topology, err = sink.NewTopology(all[len(all)-1], all[:len(all)-1]...); err != nil {
		t.Fatal(err)
	}
	return v
}

// see has the registry hold the last of some records, and know the others. It was confirmed just now.
func (r *rig) see(t testing.TB, records ...string) {
	t.Helper()
	r.views.Store(viewOf(t, time.Now(), records...))
	synctest.Wait()
}

// Two shards, of a primary and a replica each.
const twoShards = "s0=n1,n2 s1=n3,n4"

// ringed runs a test with a worker that has the partition from offset 0 under a ring of two shards of epoch 7. The keys of a row are user:{id}.
func ringed(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRinged(t)
		r.w.Assign(users, 0, changelog.Restored{})
		synctest.Wait()
		test(t, r)
	})
}

func newRinged(t *testing.T) *rig {
	r := newRigOf(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}']}\n")
	r.keepSet()
	r.views.Store(viewOf(t, time.Now(), record(7, twoShards)))
	return r
}

// next is the next owner of what r had, on the same log.
func (r *rig) next(t *testing.T) (next *rig, was changelog.Restored, offset int64) {
	next = newRinged(t)
	next.past, next.w.opts.Past = r.past, r.past
	next.views.Store(r.views.View())
	done := r.w.Revoke([]changelog.Partition{users})[0]
	k := r.keeps(done)
	return next, changelog.Restored{State: k.State, Journal: k.Journal}, done.Offset
}

// row sends a change of a row whose key lies in a shard, and returns the key.
func (r *rig) row(offset int64, shard string) string {
	id := r.idIn(offset, shard)
	r.send(offset, update(id, "a@x.test", "a@x.test"))
	return "user:" + id
}

// key is what row of the same offset returns.
func (r *rig) key(offset int64, shard string) string { return "user:" + r.idIn(offset, shard) }

// twoShardRing is where rows are looked up.
var twoShardRing = sync.OnceValue(func() *sink.Topology {
	rec, err := sink.ParseRecord("ring.json", []byte(record(7, twoShards)))
	if err != nil {
		panic(err)
	}
	top, err := sink.NewTopology(rec)
	if err != nil {
		panic(err)
	}
	return top
})

func (r *rig) idIn(offset int64, shard string) string {
	for n := offset * 1000; ; n++ {
		id := strconv.FormatInt(n, 10)
		if _, in := twoShardRing().Locate("user:" + id); in == shard {
			return id
		}
	}
}

// holdLog keeps all reads of the log back until release is called.
func (r *rig) holdLog() (release func()) {
	hold := make(chan struct{})
	r.past.mu.Lock()
	r.past.hold = hold
	r.past.mu.Unlock()
	return func() { close(hold) }
}

// wantEpochs wants these to have been acted on, and nobody to issue under less than the greatest.
func (r *rig) wantEpochs(t *testing.T, want ...int64) {
	t.Helper()
	synctest.Wait()
	if s := r.state(t); !slices.Equal(s.Acted.Epochs, want) || s.Issued.Epoch != want[len(want)-1] {
		t.Fatalf("acted on %v, issued under %d; want %v", s.Acted.Epochs, s.Issued.Epoch, want)
	}
}

// fakeRingFlusher notes what it is asked for, and fails as long as it is told to.
type fakeRingFlusher struct {
	mu   sync.Mutex
	fail bool
	got  []string // "acted -> epochs of the view"
}

func (f *fakeRingFlusher) Flush(_ context.Context, acted []int64, v *registry.View) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, fmt.Sprint(acted, " -> ", v.Epochs()))
	if f.fail {
		return errors.New("the broker is away")
	}
	return nil
}

func (f *fakeRingFlusher) failing(fail bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// asked is what was asked for, without what was asked again.
func (f *fakeRingFlusher) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Compact(slices.Clone(f.got))
}
