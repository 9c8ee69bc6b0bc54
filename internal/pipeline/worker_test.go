package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/obs/obstest"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/registry"
	"invalidator/sink/registry/registrytest"
)

const settle = time.Second

var users = changelog.Partition{Topic: "shop.shop.users", Number: 0}

// A changed address deletes both addresses' keys, on primary and replica, and again a settle later; only then does the
// watermark pass it.
func TestChangeIsDeletedTwiceOnEveryCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 7, changelog.Restored{})
		r.send(7, update("1", "a@x.test", "b@x.test"))
		synctest.Wait()

		first := r.nodes.take()
		want := []string{"n1 user:1", "n1 user:by-email:a@x.test", "n1 user:by-email:b@x.test", "n2 user:1", "n2 user:by-email:a@x.test", "n2 user:by-email:b@x.test"}
		if !slices.Equal(first, want) {
			t.Fatalf("first round\n got %q\nwant %q", first, want)
		}
		r.wantMark(t, 7)
		time.Sleep(settle - time.Millisecond)
		synctest.Wait()
		if early := r.nodes.take(); len(early) != 0 {
			t.Fatalf("the second round came before settle: %q", early)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if second := r.nodes.take(); !slices.Equal(second, want) {
			t.Fatalf("second round\n got %q\nwant %q", second, want)
		}
		r.wantMark(t, 8)
	})
}

// G9: records alternate between a node that answers and one that does not; the offset stays at the first record that is not
// finished, and moves when the node is back.
func TestG9WatermarkWaitsForTheSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes.hold("n2", true)
		r.w.Assign(users, 0, changelog.Restored{})
		for i := range int64(50) {
			r.send(i, update(fmt.Sprint(i), "a@x.test", "a@x.test"))
		}
		time.Sleep(10 * settle)
		synctest.Wait()
		r.wantMark(t, 0)
		r.nodes.hold("n2", false)
		time.Sleep(2 * settle)
		synctest.Wait()
		r.wantMark(t, 50)
	})
}

// G5: bytes that are no record are parked, and the record behind them is deleted.
func TestG5PoisonIsParkedAndPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		poison := [][]byte{{0xff, 0x00, 0x7b}, []byte(`{"before":`), []byte(`[1]`), []byte(`"x"`), []byte(`3`), {}}
		for i, p := range poison {
			r.sendRaw(changelog.Record{Offset: int64(i), Key: []byte(`{"id":1}`), Value: p})
		}
		r.send(int64(len(poison)), update("1", "a@x.test", "a@x.test"))
		time.Sleep(2 * settle)
		synctest.Wait()
		if got := r.parker.offsets(); !slices.Equal(got, []int64{0, 1, 2, 3, 4, 5}) {
			t.Errorf("parked offsets %v", got)
		}
		if !slices.Contains(r.nodes.take(), "n1 user:1") {
			t.Error("the good record's key was not deleted")
		}
		r.wantMark(t, int64(len(poison))+1)
	})
}

// When parking fails the partition stands still: the record would be nowhere.
func TestPartitionStandsWhileParkingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.parker.fail.Store(true)
		r.w.Assign(users, 0, changelog.Restored{})
		r.sendRaw(changelog.Record{Offset: 0, Value: []byte("{")})
		r.send(1, update("1", "a@x.test", "a@x.test"))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantMark(t, 0)
		if got := r.nodes.take(); len(got) != 0 {
			t.Errorf("went on behind a record that is nowhere: %q", got)
		}
		r.parker.fail.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantMark(t, 2)
	})
}

// H1: a key that memcached cannot hold is parked; the other keys of the row are deleted.
func TestH1BadKeyIsParkedAloneOthersDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a b\r\nflush_all", "b@x.test"))
		time.Sleep(2 * settle)
		synctest.Wait()
		got := r.nodes.take()
		if !slices.Contains(got, "n1 user:1") || !slices.Contains(got, "n1 user:by-email:b@x.test") {
			t.Errorf("the good keys were not deleted: %q", got)
		}
		if n := len(r.parker.offsets()); n != 1 {
			t.Errorf("parked %d times, want once", n)
		}
		r.wantMark(t, 1)
	})
}

// A node that refuses a key for good does not hold the partition: the key is parked.
func TestRefusedKeyIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes.refuse.Store(true)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.nodes.refuse.Store(false)
		time.Sleep(2 * settle)
		synctest.Wait()
		if n := len(r.parker.offsets()); n != 4 { // two keys on two nodes
			t.Errorf("parked %d, want 4", n)
		}
		r.wantMark(t, 1)
	})
}

// A ring that changes between the rounds: the second round goes to the owners of both.
func TestSecondRoundFollowsTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.nodes.take()
		r.views.Store(view(t, `{"epoch":8,"kind":"points160","shards":[{"id":"s1","weight":1,"primary":{"addr":"n3:1","zone":"a"},"replicas":[]}]}`, nil))
		time.Sleep(2 * settle)
		synctest.Wait()
		want := []string{"n1 user:1", "n1 user:by-email:a@x.test", "n2 user:1", "n2 user:by-email:a@x.test", "n3 user:1", "n3 user:by-email:a@x.test"}
		if got := r.nodes.take(); !slices.Equal(got, want) {
			t.Errorf("second round\n got %q\nwant %q", got, want)
		}
	})
}

// While previous stands, clients carry values from owner to owner: a third round follows.
func TestThirdRoundWhileResizing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.views.Store(view(t, `{"epoch":8,"kind":"points160","shards":[{"id":"s1","weight":1,"primary":{"addr":"n3:1","zone":"a"},"replicas":[]}],
			"previous":{"epoch":7,"shards":[{"id":"s0","weight":1,"primary":{"addr":"n1:1","zone":"a"},"replicas":[]}]}}`, nil))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		for round := 1; round <= 3; round++ {
			synctest.Wait()
			if round < 3 {
				r.wantMark(t, 0)
			}
			if got := r.nodes.take(); !slices.Contains(got, "n1 user:1") || !slices.Contains(got, "n3 user:1") {
				t.Errorf("round %d: %q, want old and new owner", round, got)
			}
			time.Sleep(settle)
		}
		synctest.Wait()
		r.wantMark(t, 1)
		if got := r.nodes.take(); len(got) != 0 {
			t.Errorf("a fourth round: %q", got)
		}
	})
}

// Hot keys of today's registry are fanned out, each name to its own owner.
func TestHotKeyCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.views.Store(view(t, plainRing, map[string]int{"user:1": 3}))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		got := r.nodes.take()
		for _, k := range []string{"n1 user:1", "n1 user:1#1", "n2 user:1#2", "n2 user:1#3"} {
			if !slices.Contains(got, k) {
				t.Errorf("%s is missing in %q", k, got)
			}
		}
	})
}

// What was begun is finished on a drain, second rounds too; nothing new is taken.
func TestDrainFinishesWhatWasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.w.Drain(t.Context())
		r.send(1, update("2", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.wantMark(t, 1)
	})
}

// A revoked partition issues nothing more, and what it had not finished is not said to be.
func TestRevokeStopsIssuing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.nodes.take()
		done := r.w.Revoke([]changelog.Partition{users})
		time.Sleep(3 * settle)
		synctest.Wait()
		if got := r.nodes.take(); len(got) != 0 {
			t.Errorf("issued after the revoke: %q", got)
		}
		if len(done) != 1 || done[0].Offset != 0 {
			t.Errorf("finished %v, want nothing below 0", done)
		}
		if left := r.w.all(); len(left) != 0 {
			t.Errorf("%d partitions are kept after the revoke", len(left))
		}
	})
}

// A backlog that is faster than the nodes stops the fetches, so that memory stays bounded, and starts them again.
func TestBacklogPausesFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes.hold("n1", true)
		r.w.Assign(users, 0, changelog.Restored{})
		n := int64(0)
		for !r.group.paused.Load() {
			r.send(n, update(fmt.Sprint(n), "a@x.test", "a@x.test"))
			n++
			if n > 200_000 {
				t.Fatal("never paused")
			}
		}
		r.nodes.hold("n1", false)
		time.Sleep(20 * settle)
		synctest.Wait()
		if r.group.paused.Load() {
			t.Error("still paused with nothing waiting")
		}
		r.wantMark(t, n)
	})
}

// A gap is durable and does not stop the partition.
func TestLossIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if err := r.w.Lost(t.Context(), changelog.Loss{Partition: users, From: 100, To: 500, Why: "retention"}); err != nil {
			t.Error(err)
		}
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].To != 500 {
			t.Errorf("recorded %v", r.gaps.losses)
		}
	})
}

// rig is a worker between a hand-fed group and hand-held nodes.
type rig struct {
	w      *Worker
	nodes  *fakeNodes
	parker *fakeParker
	gaps   *fakeGaps
	group  *fakeGroup
	views  *registrytest.Views
	log    obstest.Log

	refresher *fakeRefresher
	flusher   *fakeFlusher
	past      *fakeLog
	archive   *fakeArchive
	pages     pageBook // of the journal
}

const plainRing = `{"epoch":7,"kind":"points160","shards":[{"id":"s0","weight":1,"primary":{"addr":"n1:1","zone":"a"},"replicas":[{"addr":"n2:1","zone":"b"}]}]}`

const usersFile = `version: 1
team: profiles
contact: "#profiles"
pools: [user]
mappings:
  - name: user
    table: shop.users
    keys:
      - user:{id}
      - user:by-email:{email|lower}
`

func newRig(t testing.TB) *rig { return newRigOf(t, usersFile) }

func newRigOf(t testing.TB, file string) *rig {
	f, problems := mapping.Parse("users.yaml", []byte(file))
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	set, problems := mapping.NewSet([]*mapping.File{f})
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	r := &rig{nodes: newFakeNodes(), past: &fakeLog{}, archive: &fakeArchive{sets: map[string]mapping.Mapper{}}, parker: &fakeParker{}, gaps: &fakeGaps{}, refresher: &fakeRefresher{}, flusher: &fakeFlusher{}, group: &fakeGroup{}, views: &registrytest.Views{}}
	r.views.Store(view(t, plainRing, nil))
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	w, err := New(Options{
		Sources:   []*Source{{Name: "shop", Pattern: changelog.ChangeTopics("shop"), Decode: envelope.Config{Format: envelope.Auto}}},
		Snapshots: NewSnapshots(r.views, set), Deleter: r.nodes, Parker: r.parker, Refresher: r.refresher, Flusher: r.flusher, Gaps: r.gaps, Past: r.past, Archive: r.archive,
		Settle: settle, Log: log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.group = r.group
	r.w = w
	r.nodes.told = w.NodeTurned
	t.Cleanup(w.close)
	return r
}

func view(t testing.TB, record string, hot map[string]int) *registry.View {
	t.Helper()
	rec, err := sink.ParseRecord("ring.json", []byte(record))
	if err != nil {
		t.Fatal(err)
	}
	topology, err := sink.NewTopology(rec)
	if err != nil {
		t.Fatal(err)
	}
	return &registry.View{Topology: topology, Hot: sink.NewHotKeys(1, hot), Sights: []registry.Sight{{Record: rec, Seen: time.Now()}}}
}

func (r *rig) send(offset int64, c *cdc.RowChange) { r.sendAt(offset, c, time.Now()) }

// sendAt is send of a record that was appended then.
func (r *rig) sendAt(offset int64, c *cdc.RowChange, at time.Time) {
	key, value, err := envelope.Encode(c, envelope.Options{}, nil)
	if err != nil {
		panic(err)
	}
	r.sendRaw(changelog.Record{Offset: offset, Time: at, Key: key, Value: value})
}

func (r *rig) sendRaw(rec changelog.Record) {
	if rec.Time.IsZero() {
		rec.Time = time.Now()
	}
	r.past.add(rec)
	r.w.Records(users, []changelog.Record{rec})
}

func (r *rig) wantMark(t *testing.T, want int64) {
	t.Helper()
	if got := r.w.Finished([]changelog.Partition{users})[0].Offset; got != want {
		t.Fatalf("watermark %d, want %d", got, want)
	}
}

var userColumns = cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint unsigned", Key: true}, {Name: "email", Type: "varchar(200)"}})

func update(id, before, after string) *cdc.RowChange {
	row := func(email string) cdc.Row {
		return cdc.Row{{Kind: cdc.Integer, S: id}, {Kind: cdc.Text, S: email}}
	}
	return &cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: cdc.Update,
		Columns: userColumns, Before: row(before), After: row(after), CommitTime: time.Now(),
	}
}

type fakeParker struct {
	fail   atomic.Bool
	mu     sync.Mutex
	parked []int64
	last   string // the reason
}

func (p *fakeParker) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *fakeParker) ParkFrom(_ context.Context, _ changelog.Partition, r changelog.Record, reason string) error {
	if p.fail.Load() {
		return errors.New("the broker is away")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.last = append(p.parked, r.Offset), reason
	return nil
}

func (p *fakeParker) offsets() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.parked)
}

// fakeRefresher keeps what it is asked for, and fails as long as it is told to.
type fakeRefresher struct {
	fail atomic.Int64 // how many requests more
	mu   sync.Mutex
	got  []changelog.RefreshRequest
}

func (f *fakeRefresher) Request(_ context.Context, r changelog.RefreshRequest, done func(error)) {
	if f.fail.Add(-1) >= 0 {
		done(errors.New("the broker is away"))
		return
	}
	f.mu.Lock()
	f.got = append(f.got, r)
	f.mu.Unlock()
	done(nil)
}

// take returns the requests since the last take.
func (f *fakeRefresher) take() []changelog.RefreshRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	return got
}

type fakeGaps struct {
	mu     sync.Mutex
	losses []changelog.Loss
	fail   int // so many times more
}

func (g *fakeGaps) Record(_ context.Context, _ string, l changelog.Loss) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail > 0 {
		g.fail--
		return errors.New("the broker is away")
	}
	g.losses = append(g.losses, l)
	return nil
}

type fakeGroup struct{ paused atomic.Bool }

func (g *fakeGroup) Pause(changelog.Partition)  { g.paused.Store(true) }
func (g *fakeGroup) Resume(changelog.Partition) { g.paused.Store(false) }
