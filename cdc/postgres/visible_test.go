package postgres

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
)

func TestSnapshotShows(t *testing.T) {
	const epoch = uint64(3) << 32
	for _, tt := range []struct {
		snapshot string
		shown    []uint32
		hidden   []uint32
	}{
		{"100:110:100,105", []uint32{3, 99, 101, 104, 106, 109}, []uint32{100, 105, 110, 111, 1 << 30}},
		{"100:100:", []uint32{99}, []uint32{100, 101}},
		// The number of transactions has gone round: 4294967290 came before 5, and 5 after it.
		{"12884901886:12884901898:12884901889,12884901886", []uint32{4294967290, 4294967293, 4294967295, 0, 9}, []uint32{4294967294, 1, 10, 20}},
		{"12884901890:12884901898:12884901893", []uint32{4294967290, 4, 9}, []uint32{5, 10}},
	} {
		s, err := parseSnapshot(tt.snapshot)
		if err != nil {
			t.Fatal(err)
		}
		for _, xid := range tt.shown {
			if !s.shows(xid) {
				t.Errorf("%s does not show %d", tt.snapshot, xid)
			}
		}
		for _, xid := range tt.hidden {
			if s.shows(xid) {
				t.Errorf("%s shows %d", tt.snapshot, xid)
			}
		}
	}
	if (snapshot{}).shows(5) {
		t.Error("no snapshot shows a transaction")
	}
	// By what a server of the third epoch says of transaction 5.
	if s := (snapshot{min: epoch + 6, max: epoch + 6}); !s.shows(5) || s.shows(6) {
		t.Error("epoch")
	}
	for _, bad := range []string{"", "1:2", "a:2:", "1:2:3,b", "1:2:3:4"} {
		if _, err := parseSnapshot(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// One answer shows a backlog, and where no commit waits nothing is asked.
func TestHolderAsksSeldom(t *testing.T) {
	asked, needed := 0, true
	h := &holder{needed: func() bool { return needed }, long: heldTooLong, ask: func(context.Context) (snapshot, error) {
		asked++
		return snapshot{min: 1000, max: 1000}, nil
	}}
	for xid := range uint32(1000) {
		if err := h.wait(t.Context(), xid); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	needed = false
	if err := h.wait(t.Context(), 5000); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// A long wait is warned of once, and goes on: until the transaction shows, the Run ends, or the server does not answer.
func TestHolderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		var failed error
		var shown atomic.Bool
		var asked atomic.Int64
		h := &holder{needed: func() bool { return true }, long: heldTooLong, log: slog.New(slog.NewTextHandler(&logged, nil)),
			ask: func(context.Context) (snapshot, error) {
				asked.Add(1)
				if shown.Load() {
					return snapshot{min: 9, max: 9}, failed
				}
				return snapshot{min: 7, max: 9, open: []uint64{7}}, failed
			}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		await := func() { ended <- h.wait(ctx, 7) }
		go await()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it was handed over: %v", err)
		default:
		}
		if n := strings.Count(logged.String(), "level=WARN"); n != 1 || !strings.Contains(logged.String(), "xid=7") || !strings.Contains(logged.String(), "synchronous_standby_names") {
			t.Errorf("logged %q", logged.String())
		}
		if n := asked.Load(); n > 10*60*25 {
			t.Errorf("asked %d times", n)
		}
		shown.Store(true)
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > heldPollMax {
			t.Errorf("%v after %v", err, time.Since(began))
		}

		h.seen = snapshot{}
		shown.Store(false)
		go await()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		failed = errors.New("gone")
		h.seen = snapshot{}
		if err := h.wait(t.Context(), 7); !errors.Is(err, failed) {
			t.Errorf("ended with %v", err)
		}
	})
}
