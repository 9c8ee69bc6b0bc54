package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

const usersTopic = "shop.shop.users"

var users0 = changelog.Partition{Topic: usersTopic, Number: 0}

// A member reads what is there, commits what its consumer finished, and points the commit at the state record; the next
// member goes on there.
func TestGroupCommitsWhatIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		stop := g.work(t, g.c, 10, 6)
		stop()

		commit := g.commit(t)
		if !strings.HasPrefix(commit.Metadata, `{"v":1,"partition":`) {
			t.Errorf("commit metadata %q does not say where the state record lies", commit.Metadata)
		}
		state, err := g.state.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := ""
		for k, e := range state.Under("partition") {
			found = k + " " + string(e.Value)
		}
		if !strings.Contains(found, usersTopic) || !strings.HasSuffix(found, `{"offset":6}`) {
			t.Errorf("state record %q", found)
		}

		next := newFakeConsumer()
		stop = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 10 })
		if next.started[users0] != 6 {
			t.Errorf("the next member starts at %d, want 6", next.started[users0])
		}
		stop()
	})
}

// What is finished during the drain is committed when the member leaves.
func TestGroupCommitsWhatTheDrainFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		stop := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 3 })
		g.c.onDrain = func() { g.c.finish(users0, 3) }
		stop()
		if c := g.commit(t); c.At != 3 {
			t.Errorf("committed %d after the drain, want 3", c.At)
		}
	})
}

// G1: the group was away for longer than the topic keeps records: it goes on at the earliest that is left, and names what is
// lost. A commit above the log's end is a gap too, and never the end.
func TestG1LostRecordsAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name              string
		committed, delete int64
		wantStart         int64
		wantLoss          string
	}{
		{"behind the log's start", 100, 500, 500, "shop.shop.users/0 [100,500)"},
		{"above the log's end", 5000, 500, 500, "shop.shop.users/0 [-1,500)"},
		{"inside the log", 600, 500, 600, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.produce(1000)
				stop := g.join(g.c)
				g.c.await(t, func() bool { return g.c.next[users0] == 1000 })
				stop()
				adm := g.cluster.Admin(t)
				offsets := kadm.Offsets{}
				offsets.AddOffset(usersTopic, 0, tc.committed, -1)
				if err := adm.CommitAllOffsets(t.Context(), "workers", offsets); err != nil {
					t.Fatal(err)
				}
				if _, err := adm.DeleteRecords(t.Context(), deleteTo(tc.delete)); err != nil {
					t.Fatal(err)
				}
				next := newFakeConsumer()
				stop = g.join(next)
				next.await(t, func() bool { return next.next[users0] == 1000 })
				stop()
				if next.started[users0] != tc.wantStart {
					t.Errorf("starts at %d, want %d", next.started[users0], tc.wantStart)
				}
				if got := strings.Join(next.losses, "; "); got != tc.wantLoss {
					t.Errorf("losses %q, want %q", got, tc.wantLoss)
				}
			})
		})
	}
}

// G1, while running: retention overtakes a member that does not keep up.
func TestG1LossWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		stop := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 })
		g.group.Pause(users0)
		g.produce(90)
		if _, err := g.cluster.Admin(t).DeleteRecords(t.Context(), deleteTo(50)); err != nil {
			t.Fatal(err)
		}
		g.group.Resume(users0)
		g.c.await(t, func() bool { return g.c.next[users0] == 100 })
		stop()
		// A fetch that was under way when the pause came may have brought a few records past 10.
		if len(g.c.losses) != 1 || !strings.HasSuffix(g.c.losses[0], ",50)") || !g.c.skipped {
			t.Errorf("losses %q, skipped %v; want one that ends at 50", g.c.losses, g.c.skipped)
		}
	})
}

// first_start counts for topics that stood before the first worker; a topic that appears while the fleet runs is read from
// its beginning.
func TestFirstStart(t *testing.T) {
	for _, tc := range []struct {
		at   string
		want int64
	}{{"earliest", 0}, {"latest", 10}} {
		t.Run(tc.at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.at = tc.at
				g.produce(10)
				stop := g.join(g.c)
				g.c.await(t, func() bool { _, ok := g.c.started[users0]; return ok })
				if got := g.c.started[users0]; got != tc.want {
					t.Errorf("the old topic starts at %d, want %d", got, tc.want)
				}
				late := changelog.Partition{Topic: "shop.shop.late", Number: 0}
				g.makeTopic(late.Topic)
				g.produceTo(late.Topic, 5)
				g.c.await(t, func() bool { return g.c.next[late] == 5 })
				if got := g.c.started[late]; got != 0 {
					t.Errorf("a topic that appeared later starts at %d, want 0", got)
				}
				stop()
			})
		})
	}
}

// A partition that was seen before and has no commit is a gap, not a fresh start.
func TestKnownPartitionWithoutCommitIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		stop := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 })
		stop()
		if _, err := g.cluster.Admin(t).DeleteGroups(t.Context(), "workers"); err != nil {
			t.Fatal(err)
		}
		next := newFakeConsumer()
		stop = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 10 })
		stop()
		if got := strings.Join(next.losses, "; "); got != "shop.shop.users/0 [-1,0)" {
			t.Errorf("losses %q", got)
		}
	})
}

// groupRig is a fake cluster with one change topic and a group to join.
type groupRig struct {
	t       *testing.T
	cluster *changelogtest.Cluster
	state   *changelog.StateStore
	cl      *kgo.Client
	group   *changelog.Group
	c       *fakeConsumer
	at      string
	ended   chan struct{} // closed when the test has ended
}

func newGroupRig(t *testing.T) *groupRig {
	g := &groupRig{t: t, cluster: changelogtest.Start(t), c: newFakeConsumer(), at: "earliest", ended: make(chan struct{})}
	var err error
	if g.state, err = changelog.OpenState(g.cluster.Options, g.cluster.Names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.state.Close)
	g.reopen()
	t.Cleanup(func() { g.cl.Close() })
	t.Cleanup(func() {
		close(g.ended)
		synctest.Wait() // kfake does not survive a Close under two requests that hang: the second waits for ever for a lock of the first
	})
	g.makeTopic(usersTopic)
	return g
}

// reopen makes the producer anew: one that stood before a topic was made again does not write to it.
func (g *groupRig) reopen() {
	if g.cl != nil {
		g.cl.Close()
	}
	var err error
	if g.cl, err = g.cluster.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		g.t.Fatal(err)
	}
}

func (g *groupRig) makeTopic(name string) {
	if _, err := changelog.EnsureTopics(g.t.Context(), g.cluster.Admin(g.t), []changelog.TopicSpec{changelog.Settings{Partitions: 1}.Change(name)}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *groupRig) produce(n int) { g.produceTo(usersTopic, n) }

func (g *groupRig) produceTo(topic string, n int) {
	for i := range n {
		r := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(i))}
		if err := g.cl.ProduceSync(g.t.Context(), r).FirstErr(); err != nil {
			g.t.Fatal(err)
		}
	}
}

// join starts a member; what it returns makes it leave. change may alter its options.
func (g *groupRig) join(c *fakeConsumer, change ...func(*changelog.GroupOptions)) (leave func()) {
	o := changelog.GroupOptions{
		Options: g.cluster.Options, Group: "workers", State: g.state, Names: g.cluster.Names,
		Starts: []changelog.Start{{Pattern: regexp.MustCompile(`shop\..*`), At: g.at}},
	}
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, f := range change {
		f(&o)
	}
	group := changelog.NewGroup(o)
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	g.group = group
	go func() { done <- group.Run(ctx, c) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			g.t.Error(err)
		}
	}
}

// work is join, and returns when the member has read so many of the records of users0, and has committed that some are finished.
func (g *groupRig) work(t *testing.T, c *fakeConsumer, read, finished int64, change ...func(*changelog.GroupOptions)) (leave func()) {
	t.Helper()
	leave = g.join(c, change...)
	c.await(t, func() bool { return c.next[users0] == read })
	c.finish(users0, finished)
	g.awaitCommit(t, finished)
	return leave
}

func (g *groupRig) commit(t *testing.T) kadm.Offset {
	t.Helper()
	os, err := g.cluster.Admin(t).FetchOffsets(t.Context(), "workers")
	if err != nil {
		t.Fatal(err)
	}
	o, _ := os.Lookup(usersTopic, 0)
	return o.Offset
}

func (g *groupRig) awaitCommit(t *testing.T, want int64) {
	t.Helper()
	for range 100 {
		if g.commit(t).At == want {
			return
		}
		time.Sleep(100 * time.Millisecond) // the bubble's time
	}
	t.Fatalf("offset %d was never committed; %d is", want, g.commit(t).At)
}

func deleteTo(offset int64) kadm.Offsets {
	o := kadm.Offsets{}
	o.AddOffset(usersTopic, 0, offset, -1)
	return o
}

// fakeConsumer notes what it is told, and has finished what the test says.
type fakeConsumer struct {
	mu        sync.Mutex
	started   map[changelog.Partition]int64
	next      map[changelog.Partition]int64
	finished  map[changelog.Partition]int64
	was       map[changelog.Partition]changelog.Restored
	version   uint64
	journal   []changelog.JournalRecord // kept with the next commit
	drop      []string
	tooLarge  changelog.Partition
	losses    []string
	skipped   bool
	onDrain   func()
	onAssign  func()
	lostFails bool
	lostHangs string // a topic whose losses are not recorded, and take as long as they may
}

func newFakeConsumer() *fakeConsumer {
	return &fakeConsumer{
		started: map[changelog.Partition]int64{}, next: map[changelog.Partition]int64{}, finished: map[changelog.Partition]int64{},
		was: map[changelog.Partition]changelog.Restored{},
	}
}

func (c *fakeConsumer) Assign(p changelog.Partition, start int64, was changelog.Restored) {
	if c.onAssign != nil {
		c.onAssign()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.was[p] = was
	c.started[p], c.next[p] = start, start
	delete(c.finished, p)
}

func (c *fakeConsumer) Records(p changelog.Partition, rs []changelog.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped = c.skipped || rs[0].Offset != c.next[p]
	c.next[p] = rs[len(rs)-1].Offset + 1
}

func (c *fakeConsumer) Lost(ctx context.Context, l changelog.Loss) error {
	if l.Topic == c.lostHangs {
		<-ctx.Done()
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lostFails {
		return errors.New("the state topic is away")
	}
	c.losses = append(c.losses, fmt.Sprintf("%s [%d,%d)", l.Partition, l.From, l.To))
	return nil
}

func (c *fakeConsumer) Revoke(ps []changelog.Partition) []changelog.Progress {
	out := c.Finished(ps)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ps {
		delete(c.finished, p)
	}
	return out
}

func (c *fakeConsumer) finish(p changelog.Partition, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished[p] = offset
}

func (c *fakeConsumer) Finished(ps []changelog.Partition) []changelog.Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []changelog.Progress
	for p, o := range c.finished {
		if slices.Contains(ps, p) {
			out = append(out, changelog.Progress{Partition: p, Offset: o, Version: c.version, Keep: func() changelog.Kept {
				c.mu.Lock()
				defer c.mu.Unlock()
				k := changelog.Kept{State: []byte(fmt.Sprintf(`{"offset":%d}`, o)), Journal: c.journal, Drop: c.drop}
				if c.version > 0 {
					k.State = []byte(fmt.Sprintf(`{"offset":%d,"version":%d}`, o, c.version))
				}
				c.journal, c.drop = nil, nil
				if p == c.tooLarge && p.Topic != "" {
					k.State = fmt.Appendf(nil, "%q", strings.Repeat("x", 2<<20))
				}
				return k
			}})
		}
	}
	return out
}

func (c *fakeConsumer) Drain(context.Context) {
	if c.onDrain != nil {
		c.onDrain()
	}
}

// await waits in the bubble's time until cond holds, which is asked under the lock.
func (c *fakeConsumer) await(t *testing.T, cond func() bool) {
	t.Helper()
	for range 600 {
		c.mu.Lock()
		ok := cond()
		c.mu.Unlock()
		if ok {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("waited for a minute; started %v, next %v, losses %v", c.started, c.next, c.losses)
}
