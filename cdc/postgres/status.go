package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// Status is how far a Feeder is behind its server, and what that costs the server. It is as of the last look, every few
// seconds while a Run streams.
type Status struct {
	At            time.Time // of the last look; zero: there was none yet
	LagBytes      int64     // log that the server has written and the Handler has not yet been given
	RetainedBytes int64     // log that the server keeps for the slot
	SafeBytes     int64     // log that may still be written before the server gives the slot up (max_slot_wal_keep_size); -1: no limit
	// Seen is the server's time up to which everything has been handed over: of the last commit, or, where nothing of ours is
	// written, of the server's last word. Behind by more than a few seconds is a lag. Zero: nothing was heard yet.
	Seen time.Time
}

// Status tells how the Feeder stands. It may be called from any goroutine.
func (f *Feeder) Status() Status {
	var s Status
	if p := f.measured.Load(); p != nil {
		s = *p
	}
	s.Seen = f.done().time
	return s
}

// Lag implements cdc.Lagger, as of the last look.
func (f *Feeder) Lag(context.Context, cdc.Position) (cdc.Lag, error) {
	s := f.Status()
	if s.At.IsZero() {
		return cdc.Lag{}, errNotMeasured
	}
	return cdc.Lag{Bytes: s.LagBytes, Retained: s.RetainedBytes, Safe: s.SafeBytes}, nil
}

var errNotMeasured = errors.New("the server was not asked yet")

// progress is a place in the log, and the server's time there.
type progress struct {
	at   lsn
	time time.Time
}

// done is behind everything that this Run has handed over.
func (f *Feeder) done() progress {
	if p := f.reached.Load(); p != nil {
		return *p
	}
	return progress{}
}

// measure looks what the slot costs.
func (f *Feeder) measure(ctx context.Context, conn *pgx.Conn) error {
	slot, err := findSlot(ctx, conn, f.cfg.Slot)
	if err != nil || slot == nil {
		return err
	}
	lag := int64(0)
	if at := f.done().at; slot.End > at {
		lag = int64(slot.End - at)
	}
	f.measured.Store(&Status{At: time.Now(), LagBytes: lag, RetainedBytes: slot.Retained, SafeBytes: slot.Safe})
	return nil
}
