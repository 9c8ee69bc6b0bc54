package cdc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Position is a place in a source's log, at the end of a transaction. It is JSON on the state topic. Exactly one of the
// groups is set, by the feeder's own kind; positions are compared only by that feeder.
type Position struct {
	// MySQL and MariaDB: everything in the set has been handed over. For MariaDB one GTID a domain.
	GTIDSet    string `json:"gtid_set,omitempty"`
	ServerUUID string `json:"server_uuid,omitempty"` // of the server that the set was read from; MariaDB: server_id as text
	File       string `json:"file,omitempty"`        // informative, where GTIDs are on
	Pos        uint64 `json:"pos,omitempty"`

	// Postgres: the end of the last transaction handed over, in X/X form.
	LSN      string `json:"lsn,omitempty"`
	SystemID string `json:"system_id,omitempty"`
	Timeline int32  `json:"timeline,omitempty"`
}

// IsZero reports whether nothing is known: a new source.
func (p Position) IsZero() bool { return p == Position{} }

// Feeder reads one source's log. One process runs one Feeder a source, and never two Runs of it at once.
type Feeder interface {
	// Check asks the source whether it can be fed, and changes nothing there. It is called before anything starts, and from
	// time to time while Run runs, from another goroutine. It returns what it found, mildest last; the error is for a source
	// that could not be asked at all.
	Check(ctx context.Context) ([]Finding, error)

	// Run hands every change of the included tables after from to out, in commit order, and blocks until ctx ends (nil),
	// or the source cannot go on. A zero from means: start at the source's current position.
	//
	// A returned error is a *SourceError. Retryable() says whether a later Run from the last saved position may work (a cut
	// connection); otherwise a person must act (a gap, a wrong password) and the caller shows the hint and tries again slowly.
	Run(ctx context.Context, from Position, out Handler) error

	// Confirm tells the source that everything up to p is saved durably and may be forgotten there. It is called from any
	// goroutine while Run runs, with rising positions, and does not block. MySQL ignores it.
	Confirm(p Position)

	// Restart is what follows a gap that a person, or the source's on_gap, has accepted: it takes out of the way what of ours
	// can no longer be read (a lost replication slot) and makes it anew, and returns the present position, from which a Run
	// can go on. What was committed before that is in the gap. It is called while no Run runs, and may be called again for
	// the same gap: a later position is then the end of a longer gap. It never touches what is not ours.
	Restart(ctx context.Context) (Position, error)
}

// Widener is a Feeder that is told which tables were included when the position was saved that the next Run gets: those
// that Include chooses beside them join there (Handler.Joined). nil: the same ones. It is called before Run.
type Widener interface{ Widen(earlier *Include) }

// Lag is how far a source's log reaches beyond what was read of it.
type Lag struct {
	Bytes    int64 // of the log behind the position, whoever's tables they are about
	Retained int64 // of the log that the server keeps for us alone; 0 where it keeps its log whoever reads it
	Safe     int64 // that the server may still write before it gives up keeping them; -1: no limit
}

// Lagger is a Feeder that can tell its Lag. It is asked every few seconds while Run runs, from another goroutine, and may ask the
// server.
type Lagger interface {
	Lag(ctx context.Context, at Position) (Lag, error)
}

// Handler receives what a Feeder reads. All calls come from Run's goroutine, one at a time, and may block: that is how
// back pressure reaches the log (a feeder keeps its server connection alive meanwhile). An error ends Run with that error.
type Handler interface {
	// Started is called once a Run, before the first change, with the position from which changes follow. For a new source
	// the caller saves it before it returns, so that nothing between start and first commit can be lost.
	Started(ctx context.Context, p Position) error
	// Change hands over one row change, which is the callee's until it returns: who keeps it keeps a Clone. A feeder's texts stay.
	Change(ctx context.Context, c *RowChange) error
	// Lost says that rows changed at this place of the log in a way that the log does not tell, although it can be read on: a
	// statement logged as text, a partition dropped. It returns when that is written down durably: the position may then pass it.
	Lost(ctx context.Context, l Loss) error
	// Joined says that tables are fed from p on and were not before: what was committed in them earlier was not seen. It is not
	// called for the tables of a new source, which are all fed from Started's position, nor for a table that was created
	// since. It returns when that is written down durably.
	Joined(ctx context.Context, tables []TableID, p Position) error
	// Committed says that a transaction is complete: p lies behind every change handed over so far. It is also called
	// without changes before it, when the log moved on over tables that are not ours (a keepalive, foreign transactions).
	Committed(ctx context.Context, p Position, at time.Time) error
}

// Severity grades a Finding.
type Severity string

const (
	SeverityError   Severity = "error"   // the source, or the named table, cannot be fed
	SeverityWarning Severity = "warning" // it can be fed, but something will not be seen
)

// Finding is one result of a check: what is wrong, where, and the statement or setting that mends it.
type Finding struct {
	Severity Severity `json:"severity"`
	Source   string   `json:"source"`
	Table    string   `json:"table,omitempty"`
	Column   string   `json:"column,omitempty"`
	What     string   `json:"what"`
	Hint     string   `json:"hint,omitempty"`
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: source %s", f.Severity, f.Source)
	if f.Table != "" {
		s += ", table " + f.Table
	}
	if f.Column != "" {
		s += ", column " + f.Column
	}
	s += ": " + f.What
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Loss is a change of rows that the log shows without the rows.
type Loss struct {
	Tables []TableID // whose rows may have changed; Table is empty where every included table of the schema is meant. Never none
	At     Position  // the start of the transaction
	Tx     string    // its id; empty where unknown
	Time   time.Time // of the commit; zero where unknown
	Why    string    // one line: "UPDATE logged as a statement"
	Hint   string    // what keeps it from happening again
}

// ErrGap marks a SourceError whose position the log cannot resume at: changes are lost to us. Such an error wraps a *GapError.
var ErrGap = errors.New("gap in the log")

// GapError says what of a log was not seen and cannot be. errors.Is(err, ErrGap) holds for it. Where it begins is the
// SourceError's At.
type GapError struct {
	Err    error     // why, in one line
	Tables []TableID // whose changes are lost; nil: of every included table

	// Undone reports whether a change that we handed over earlier never happened on the server as it is now: the last
	// transactions before a failover. Readers may have cached what they wrote, so their keys are deleted again from our own
	// topics. c is as decoded from our topic: Tx and Position are set. nil: nothing is undone.
	Undone func(c *RowChange) bool
	// UndoneText names those transactions for people: a GTID set, a range of LSNs. Empty where Undone is nil.
	UndoneText string
}

func (e *GapError) Error() string   { return ErrGap.Error() + ": " + e.Err.Error() }
func (e *GapError) Unwrap() []error { return []error{ErrGap, e.Err} }

// SourceError is why a source stands still. Its text is one line that an operator can act on.
type SourceError struct {
	Source string
	Table  TableID // zero where it is not about one table
	Column string
	At     Position
	Err    error
	Hint   string // what to do: a statement, a setting
	Retry  bool   // a later Run may work without anybody's help
}

func (e *SourceError) Error() string {
	s := "source " + e.Source
	if e.Table.Table != "" {
		s += ", table " + e.Table.String()
	}
	if e.Column != "" {
		s += ", column " + e.Column
	}
	switch {
	case e.At.GTIDSet != "":
		s += ", at " + e.At.GTIDSet
	case e.At.File != "":
		s += fmt.Sprintf(", at %s:%d", e.At.File, e.At.Pos)
	case e.At.LSN != "":
		s += ", at " + e.At.LSN
	}
	s += ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *SourceError) Unwrap() error { return e.Err }

// Retryable reports whether trying again unchanged may work.
func (e *SourceError) Retryable() bool { return e.Retry }
