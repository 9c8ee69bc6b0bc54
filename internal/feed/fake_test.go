package feed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/gap"
	"invalidator/internal/obs/obstest"
)

// fakeFeeder is a database's log in memory. Position n+1 lies behind its first n transactions.
type fakeFeeder struct {
	mu        sync.Mutex
	log       [][]*cdc.RowChange
	grown     chan struct{} // closed and replaced when log grows
	fail      error         // returned by Run before anything is read
	starts    []uint64      // Pos of every from
	confirmed []uint64
	onStarted func()

	purged    uint64 // a start before it is a gap; 0: none is
	lost      cdc.GapError
	restarts  int
	onRestart func()
	losses    map[uint64]cdc.Loss      // told before the transaction that ends at this position
	joins     map[uint64][]cdc.TableID // the same
}

// purge loses everything before the log's end.
func (f *fakeFeeder) purge(lost cdc.GapError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purged, f.lost = uint64(len(f.log))+1, lost
}

func (f *fakeFeeder) gap(from cdc.Position) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from.Pos == 0 || from.Pos >= f.purged {
		return nil
	}
	lost := f.lost
	return &cdc.SourceError{Source: "shop", At: from, Err: &lost, Hint: "keep the log for longer"}
}

func newFakeFeeder() *fakeFeeder { return &fakeFeeder{grown: make(chan struct{})} }

// commit appends a transaction.
func (f *fakeFeeder) commit(rows ...*cdc.RowChange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, rows)
	close(f.grown)
	f.grown = make(chan struct{})
}

func (f *fakeFeeder) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeFeeder) seen() (starts, confirmed []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]uint64(nil), f.starts...), append([]uint64(nil), f.confirmed...)
}

func (f *fakeFeeder) Check(context.Context) ([]cdc.Finding, error) { return nil, nil }

// Restart returns the log's end.
func (f *fakeFeeder) Restart(context.Context) (cdc.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restarts++
	f.purged = uint64(len(f.log)) + 1
	if f.onRestart != nil {
		f.onRestart()
	}
	return cdc.Position{Pos: f.purged}, nil
}

func (f *fakeFeeder) Confirm(p cdc.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed = append(f.confirmed, p.Pos)
}

func (f *fakeFeeder) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	f.mu.Lock()
	f.starts = append(f.starts, from.Pos)
	err := f.fail
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if err := f.gap(from); err != nil {
		return err
	}
	next := max(from.Pos, 1)
	if err := out.Started(ctx, cdc.Position{Pos: next}); err != nil {
		return err
	}
	if f.onStarted != nil {
		f.onStarted()
	}
	for {
		f.mu.Lock()
		rows, grown := f.log[next-1:], f.grown
		f.mu.Unlock()
		for _, tx := range rows {
			for _, c := range tx {
				row := *c // the callee owns what it is given
				if err := out.Change(ctx, &row); err != nil {
					return err
				}
			}
			next++
			if l, ok := f.losses[next]; ok {
				if err := out.Lost(ctx, l); err != nil {
					return err
				}
			}
			if tables := f.joins[next]; tables != nil {
				if err := out.Joined(ctx, tables, cdc.Position{Pos: next}); err != nil {
					return err
				}
			}
			if err := out.Committed(ctx, cdc.Position{Pos: next}, time.Now()); err != nil {
				return err
			}
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
	}
}

var userColumns = cdc.NewColumns([]cdc.Column{
	{Name: "id", Type: "bigint unsigned", Key: true}, {Name: "email", Type: "varchar(255)"}, {Name: "bio", Type: "text"},
})

func text(s string) cdc.Value { return cdc.Value{Kind: cdc.Text, S: s} }

func user(id, email, bio string) cdc.Row {
	return cdc.Row{{Kind: cdc.Integer, S: id}, text(email), text(bio)}
}

func change(op cdc.Op, before, after cdc.Row) *cdc.RowChange {
	return &cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: op,
		Columns: userColumns, KeyColumns: []string{"id"}, Before: before, After: after,
		CommitTime: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), Tx: "u:1",
	}
}

func insert(id string) *cdc.RowChange { return change(cdc.Insert, nil, user(id, id+"@x.test", "")) }

const usersTopic = "shop.shop.users"

// bench is a Feed on a fake Kafka.
type bench struct {
	*changelogtest.Cluster
	t       *testing.T
	log     *obstest.Log
	metrics *Metrics

	processes int
	feed      *Feed // the last that was started
}

func newBench(t *testing.T) *bench {
	return &bench{Cluster: changelogtest.Start(t), t: t, log: &obstest.Log{}}
}

// start runs a Feed of a process of its own over the sources. stop is SIGTERM; it returns what Run did.
func (b *bench) start(sources ...Source) (stop func() error) {
	b.t.Helper()
	store, err := changelog.OpenState(b.Options, b.Names.State)
	if err != nil {
		b.t.Fatal(err)
	}
	gaps, err := gap.OpenBook(b.Options, b.Names, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	b.processes++
	f, err := New(Options{
		Kafka: b.Options, State: store, Gaps: gaps, Sources: sources, Metrics: b.metrics, Group: "invalidator", Self: fmt.Sprintf("p%d", b.processes),
		Log: slog.New(slog.NewTextHandler(b.log, nil)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.feed = f
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	var once sync.Once
	stop = func() (err error) {
		once.Do(func() {
			cancel()
			err = <-done
			store.Close()
			gaps.Close()
		})
		return err
	}
	b.t.Cleanup(func() { _ = stop() })
	return stop
}

// state is what the state topic holds now.
func (b *bench) state() *changelog.State {
	b.t.Helper()
	store, err := changelog.OpenState(b.Options, b.Names.State)
	if err != nil {
		b.t.Fatal(err)
	}
	defer store.Close()
	st, err := store.Load(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

// saved is the saved position of the source shop.
func (b *bench) saved() changelog.SavedPosition {
	b.t.Helper()
	p, err := b.state().LoadPosition("shop")
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bench) values(topic string) []string {
	b.t.Helper()
	var vs []string
	for _, r := range b.Records(b.t, topic) {
		vs = append(vs, string(r.Value))
	}
	return vs
}
