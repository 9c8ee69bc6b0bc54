package feed

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// served is a fakeFeeder at a server with a name, which never had some transactions.
type served struct {
	*fakeFeeder
	server string
	lacks  []string
	asked  int
}

func (s *served) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	return s.fakeFeeder.Run(ctx, from, named{out, s.server})
}

func (s *served) Undone(context.Context) (func(*cdc.RowChange) bool, error) {
	s.asked++
	return func(c *cdc.RowChange) bool {
		for _, tx := range s.lacks {
			if c.Tx == tx {
				return true
			}
		}
		return false
	}, nil
}

// named puts the server's name into positions.
type named struct {
	cdc.Handler
	server string
}

func (n named) Started(ctx context.Context, p cdc.Position) error {
	p.ServerUUID = n.server
	return n.Handler.Started(ctx, p)
}

func (n named) Committed(ctx context.Context, p cdc.Position, at time.Time) error {
	p.ServerUUID = n.server
	return n.Handler.Committed(ctx, p, at)
}

// A leader dies after it handed over transactions and before it saved the position behind them, and a failover loses just these. No
// position knows of them: their records are found on our topics, and written again, before the position is one of the new server.
func TestUnsavedTransactionsThatAFailoverUndidAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		old := &served{fakeFeeder: newFakeFeeder(), server: "A"}
		stop := b.start(shop(old))
		for _, tx := range []string{"a:1", "a:2", "a:3"} {
			row := insert(tx[2:])
			row.Tx, row.Position = tx, cdc.Position{GTIDSet: "a:1"}
			old.commit(row)
		}
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if old.asked > 0 {
			t.Error("asked at the server of the position")
		}
		saved := b.saved() // as it was when the leader died: behind a:1
		saved.Position.Pos = 2
		store, err := changelog.OpenState(b.Options, b.Names.State)
		if err == nil {
			err = store.PutPosition(t.Context(), "shop", saved.Generation, saved.Position)
		}
		if err != nil {
			t.Fatal(err)
		}
		store.Close()

		next := &served{fakeFeeder: newFakeFeeder(), server: "B", lacks: []string{"a:2", "a:3"}}
		row := insert("1")
		row.Tx = "a:1"
		next.commit(row)
		fault := b.Fault(produceFault(usersTopic, kerr.NotEnoughReplicas))
		stop = b.start(shop(next))
		time.Sleep(20 * time.Second)
		_ = stop() // a crash, too
		if p := b.saved().Position; p.ServerUUID != "A" || p.Pos != 2 {
			t.Fatalf("the position is %+v, and nothing was written again", p)
		}
		fault.Remove()

		stop = b.start(shop(next))
		time.Sleep(10 * time.Second)
		if p := b.saved().Position; p.ServerUUID != "B" || p.Pos != 2 {
			t.Errorf("%+v", p)
		}
		want := func(when string) {
			t.Helper()
			times := map[string]int{}
			for _, v := range b.values(usersTopic) {
				for _, tx := range []string{"a:1", "a:2", "a:3"} {
					times[tx] += strings.Count(v, `"gtid":"`+tx+`"`)
				}
			}
			if times["a:1"] != 1 || times["a:2"] < 2 || times["a:3"] < 2 {
				t.Errorf("%s: %v", when, times)
			}
		}
		want("at another server")
		n, asked := len(b.values(usersTopic)), next.asked
		if all := b.gaps(); len(all) != 0 {
			t.Errorf("nothing is lost: %+v", all[0])
		}
		_ = stop()
		b.start(shop(next))
		time.Sleep(10 * time.Second)
		if len(b.values(usersTopic)) != n || next.asked != asked {
			t.Error("they were looked for once more at the same server")
		}
	})
}
