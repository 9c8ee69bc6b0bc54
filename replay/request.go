package replay

import (
	"errors"
	"fmt"
	"time"
)

// Version is the format version of every record on the control and status topics.
const Version = 1

// Action is what a request asks for.
type Action string

const (
	Replay Action = "replay" // the deletes of a window of the log, again
	Flush  Action = "flush"  // all of a pool's keys, a node's, or those that nodes gained, part by part
	Cancel Action = "cancel" // of the replay or flush Of
	Pause  Action = "pause"  // of the flush Of, or of Target.Pool: its log becomes a debt
	Resume Action = "resume" // of what was paused
)

// Window says what From and To of a replay are times of.
type Window string

const (
	// Issued is what had a round in the window, whenever it was committed.
	Issued Window = "issued"
	// Committed is what was committed in the window, and what had a round in it.
	Committed Window = "committed"
)

// Request is a record of kind "request" on the control topic. Its Kafka key is ID.
type Request struct {
	ID      string    `json:"id"`               // chosen by who asks; a second request of the same id is the first one
	At      time.Time `json:"at"`               // for people: what counts is where the record lies, and when the broker took it
	By      string    `json:"by"`               // who asked, for people: user@host
	Reason  string    `json:"reason,omitempty"` // why, for people
	Action  Action    `json:"action"`
	Target  Target    `json:"target,omitzero"`
	Of      string    `json:"of,omitempty"`     // Cancel, Pause, Resume: the id of a replay or a flush
	Window  Window    `json:"window,omitempty"` // Replay
	From    time.Time `json:"from,omitzero"`    // Replay: the window
	To      time.Time `json:"to,omitzero"`      // Replay: the same; zero means until the plan is made
	Expires time.Time `json:"expires,omitzero"` // Replay, Flush: what has not begun by then is refused; zero: never
	DryRun  bool      `json:"dry_run,omitempty"`
	Force   bool      `json:"force,omitempty"` // Cancel: also of a request with a cause, whose gap then stays open
	Options           // Flush
	Cause   *Cause    `json:"cause,omitempty"` // Flush: what made a worker ask; nil where it was anybody else
}

// Options are how a flush goes. The zero Options are the defaults.
type Options struct {
	Pace     int64  `json:"pace,omitempty"`      // copies a second, of all nodes together; 0: the workers' replay.flush.pace
	Slices   int    `json:"slices,omitempty"`    // into how many parts all of the ring is cut, at least; 0: 32
	Stale    bool   `json:"stale,omitempty"`     // keys are marked stale, not deleted: for pools whose readers speak meta
	StaleFor int64  `json:"stale_for,omitempty"` // Stale: seconds that are left to a key that nobody refreshes, 1 to 60; 0: 30
	MaxLoad  string `json:"max_load,omitempty"`  // the load above which it waits: LIMIT, EXPR<LIMIT or URL<LIMIT; empty: twice that of the minute before
	Refill   int64  `json:"refill,omitempty"`    // seconds for which the load is below its limit before the next part begins; 0: the workers' replay.flush.refill
}

const (
	maxStaleFor = 60 // seconds
	maxSlices   = 65536
)

func (o Options) validate() error {
	switch {
	case o.Pace < 0 || o.Slices < 0 || o.Refill < 0:
		return errors.New("pace, slices and refill are not below 0")
	case o.Slices > maxSlices:
		return fmt.Errorf("%d slices are more than %d", o.Slices, maxSlices)
	case o.StaleFor < 0 || o.StaleFor > maxStaleFor || o.StaleFor > 0 && !o.Stale:
		return fmt.Errorf("stale_for of %d is none: 1 to %d seconds, of what is marked stale", o.StaleFor, maxStaleFor)
	}
	return nil
}

func (r Request) validate() error {
	if r.ID == "" {
		return errNoID
	}
	if err := r.validateAction(); err != nil {
		return err
	}
	switch {
	case r.Action != Replay && (r.Window != "" || !r.From.IsZero() || !r.To.IsZero()):
		return fmt.Errorf("a %s has no window", r.Action)
	case r.Action != Flush && r.Options != Options{}:
		return fmt.Errorf("a %s has no pace, slices, stale, max_load or refill", r.Action)
	case r.Action != Flush && r.Cause != nil:
		return fmt.Errorf("a %s has no cause", r.Action)
	case r.Action != Cancel && r.Force:
		return fmt.Errorf("a %s has no force", r.Action)
	case r.Action != Replay && r.Action != Flush && (r.DryRun || !r.Expires.IsZero()):
		return fmt.Errorf("a %s neither expires nor has it a dry run", r.Action)
	case r.Cause != nil:
		return r.Cause.validate()
	}
	return nil
}

func (r Request) validateAction() error {
	targets := r.Target.count()
	switch r.Action {
	case Replay:
		if targets != 1 || r.Target.Gained != 0 || r.Of != "" {
			return errors.New("a replay needs one target: a shard, node, range, pool or mapping")
		}
		return validWindow(r.Window, r.From, r.To)
	case Flush:
		if r.Of != "" || !r.Target.flushable() {
			return errors.New("a flush needs a pool, of all shards or of one, a node, or an epoch under which nodes gained keys")
		}
		return r.Options.validate()
	case Cancel:
		if r.Of == "" || targets != 0 {
			return errors.New("a cancel needs the id of what is cancelled")
		}
	case Pause, Resume:
		if (r.Of == "") == (targets == 0) || targets > 0 && (targets > 1 || r.Target.Pool == "") {
			return fmt.Errorf("a %s needs the id of a flush, or a pool", r.Action)
		}
	default:
		return fmt.Errorf("unknown action %q", r.Action)
	}
	return nil
}

func validWindow(w Window, from, to time.Time) error {
	switch {
	case w != Issued && w != Committed:
		return fmt.Errorf("unknown window %q: it is %s or %s", w, Issued, Committed)
	case from.IsZero():
		return errors.New("a window needs from")
	case !to.IsZero() && to.Before(from):
		return errors.New("its window ends before it begins")
	}
	return nil
}

var errNoID = errors.New("it has no id")
