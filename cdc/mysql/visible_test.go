package mysql

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// The server here has no semi-synchronous replication inside: these are its variables as 8.0's manual has them, under the old names and,
// from 8.0.26 on, the new ones. TestHeldBackUntilReadersSeeIt has a wait that the server knows.
func TestCommitsMayWait(t *testing.T) {
	old := map[string]string{"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_wait_point": "AFTER_SYNC", "sync_binlog": "1"}
	for _, tt := range []struct {
		server server
		want   bool
	}{
		{server{gtid: true, vars: old}, true},
		{server{gtid: true, vars: map[string]string{"rpl_semi_sync_source_enabled": "ON", "rpl_semi_sync_source_wait_point": "AFTER_SYNC"}}, true},
		{server{gtid: true, vars: map[string]string{"rpl_semi_sync_master_enabled": "OFF", "rpl_semi_sync_master_wait_point": "AFTER_SYNC"}}, false},
		{server{gtid: true, vars: map[string]string{"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_wait_point": "AFTER_COMMIT"}}, false},
		{server{gtid: false, vars: old}, false},
		{server{gtid: true, maria: true, vars: old}, false},
		{server{gtid: true, vars: map[string]string{"sync_binlog": "1", "binlog_group_commit_sync_delay": "1000"}}, false}, // read when it is synced
		{server{gtid: true, vars: map[string]string{"sync_binlog": "0", "binlog_group_commit_sync_delay": "1000"}}, true},
		{server{gtid: true, vars: map[string]string{"sync_binlog": "0", "binlog_group_commit_sync_delay": "0"}}, false},
		{server{gtid: true, vars: map[string]string{}}, false},
	} {
		if got := tt.server.waits(); got != tt.want {
			t.Errorf("%+v: %v", tt.server, got)
		}
	}
}

// A wait that is longer than the second delete is found where it cannot be told when it is over.
func TestWaitsThatNobodyCanTell(t *testing.T) {
	vars := map[string]string{"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_wait_point": "AFTER_SYNC", "rpl_semi_sync_master_timeout": "10000"}
	f := &Feeder{cfg: Config{Settle: time.Second}}
	for _, tt := range []struct {
		server server
		want   int
	}{{server{gtid: true, vars: vars}, 0}, {server{vars: vars}, 1}, {server{gtid: true, maria: true, vars: vars}, 1}} {
		if found := f.checkTimes(&tt.server); len(found) != tt.want || tt.want == 1 && !strings.Contains(found[0].What, "10s before they are visible") {
			t.Errorf("%+v: %q", tt.server, found)
		}
	}
}

const heldUUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

// taken is a Handler that counts.
type taken struct{ changes, losses int }

func (h *taken) Started(context.Context, cdc.Position) error               { return nil }
func (h *taken) Change(context.Context, *cdc.RowChange) error              { h.changes++; return nil }
func (h *taken) Lost(context.Context, cdc.Loss) error                      { h.losses++; return nil }
func (h *taken) Joined(context.Context, []cdc.TableID, cdc.Position) error { return nil }
func (h *taken) Committed(context.Context, cdc.Position, time.Time) error  { return nil }
func holderOf(ask func(context.Context) (string, error)) (h *holder, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	return &holder{Handler: &taken{}, needed: func() bool { return true }, ask: ask, log: slog.New(slog.NewTextHandler(log, nil)), long: heldTooLong,
		seen: &mysql.MysqlGTIDSet{}}, log
}

// One answer shows a backlog, tags and all; where no commit waits, and of what has no GTID, nothing is asked.
func TestHolderAsksSeldom(t *testing.T) {
	asked := 0
	h, _ := holderOf(func(context.Context) (string, error) {
		asked++
		return heldUUID + ":1-1000:tagged:1-5,\n00000000-0000-0000-0000-000000000001:7", nil
	})
	for _, tx := range []string{heldUUID + ":1", heldUUID + ":1", heldUUID + ":999", heldUUID + ":tagged:5", "00000000-0000-0000-0000-000000000001:7", ""} {
		if err := h.Change(t.Context(), &cdc.RowChange{Tx: tx}); err != nil {
			t.Fatal(tx, err)
		}
	}
	h.needed = func() bool { return false }
	if err := h.Lost(t.Context(), cdc.Loss{Tx: heldUUID + ":2000"}); err != nil || asked != 1 || *h.Handler.(*taken) != (taken{6, 1}) {
		t.Errorf("%v, asked %d times, %+v", err, asked, h.Handler)
	}
	h.needed = func() bool { return true }
	if err := h.Change(t.Context(), &cdc.RowChange{Tx: "no GTID"}); err == nil || h.Handler.(*taken).changes != 6 {
		t.Errorf("%v, %+v", err, h.Handler)
	}
}

// Neither a change nor a loss goes on before readers see its transaction. A long wait is warned of once.
func TestHolderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shown atomic.Bool
		h, log := holderOf(func(context.Context) (string, error) {
			if shown.Load() {
				return heldUUID + ":1-7", nil
			}
			return heldUUID + ":1-6", nil
		})
		for _, call := range []func() error{
			func() error { return h.Change(t.Context(), &cdc.RowChange{Tx: heldUUID + ":7"}) },
			func() error { return h.Lost(t.Context(), cdc.Loss{Tx: heldUUID + ":7"}) },
		} {
			shown.Store(false)
			h.shown, h.seen = "", &mysql.MysqlGTIDSet{}
			*h.Handler.(*taken) = taken{}
			log.Reset()
			ended := make(chan error, 1)
			go func() { ended <- call() }()
			<-time.After(2 * time.Minute)
			synctest.Wait()
			if len(ended) > 0 || *h.Handler.(*taken) != (taken{}) {
				t.Fatal("it was handed over")
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), heldUUID+":7") {
				t.Errorf("logged %q", log)
			}
			shown.Store(true)
			began := time.Now()
			if err := <-ended; err != nil || time.Since(began) > heldPollMax || *h.Handler.(*taken) == (taken{}) {
				t.Errorf("%v after %v, %+v", err, time.Since(began), h.Handler)
			}
		}
	})
}

// What cannot be asked, or not be read, is not handed over; neither is anything once the Run ends.
func TestHolderFails(t *testing.T) {
	gone := errors.New("gone")
	for _, tt := range []struct {
		answer string
		err    error
		want   string
	}{{"", gone, "gone"}, {"nonsense", nil, "gtid_executed"}} {
		h, _ := holderOf(func(context.Context) (string, error) { return tt.answer, tt.err })
		if err := h.Change(t.Context(), &cdc.RowChange{Tx: heldUUID + ":7"}); err == nil || !strings.Contains(err.Error(), tt.want) || *h.Handler.(*taken) != (taken{}) {
			t.Errorf("%v, %+v", err, h.Handler)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		h, _ := holderOf(func(context.Context) (string, error) { return "", nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Change(ctx, &cdc.RowChange{Tx: heldUUID + ":7"}) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || *h.Handler.(*taken) != (taken{}) {
			t.Errorf("%v, %+v", err, h.Handler)
		}
	})
}

// A server whose log is begun anew (RESET MASTER) forgets its GTIDs: a transaction from before is not waited for.
func TestHolderOfALogThatBeginsAnew(t *testing.T) {
	answers := []string{heldUUID + ":1-6", heldUUID + ":1-2"}
	h, _ := holderOf(func(context.Context) (string, error) {
		a := answers[0]
		answers = answers[min(1, len(answers)-1):]
		return a, nil
	})
	if err := h.Change(t.Context(), &cdc.RowChange{Tx: heldUUID + ":7"}); err != nil || h.Handler.(*taken).changes != 1 {
		t.Errorf("%v, %+v", err, h.Handler)
	}
}
