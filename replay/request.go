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
	Flush  Action = "flush"  // all of a pool's keys, or a node's, slice by slice
	Cancel Action = "cancel" // of the replay or flush Of
	Pause  Action = "pause"  // of the flush Of, or of Target.Pool: its log becomes a debt
	Resume Action = "resume" // of what was paused
)

// Request is a record of kind "request" on the control topic. Its Kafka key is ID.
type Request struct {
	ID     string    `json:"id"` // chosen by who asks; a second request of the same id is the first one
	At     time.Time `json:"at"` // Flush: a flush that begins after it, and later by cache.settle, answers this request too
	By     string    `json:"by"` // who asked, for people: user@host
	Action Action    `json:"action"`
	Target Target    `json:"target,omitzero"`
	Of     string    `json:"of,omitempty"`  // Cancel, Pause, Resume: the id of a replay or a flush
	From   time.Time `json:"from,omitzero"` // Replay: the window, by the time at which records were appended
	To     time.Time `json:"to,omitzero"`   // Replay: zero means until the request was read
	DryRun bool      `json:"dry_run,omitempty"`
	Cause  *Cause    `json:"cause,omitempty"` // Flush: what made a worker ask; nil where it was anybody else
}

// Cause is what made a worker ask for a flush, and what the request covers: every key of the pool that Tables fed when Record was
// committed. Requests of one pool may be answered by one flush that begins after the last of them.
type Cause struct {
	What      string    `json:"what"` // truncate
	Source    string    `json:"source"`
	Tables    []string  `json:"tables"` // schema.table, or schema.* for every table of it
	Record    Range     `json:"record"` // of the log: the one record that said so
	Committed time.Time `json:"committed,omitzero"`
}

// Truncate is a Cause's What: tables lost their rows, and nothing says which they were.
const Truncate = "truncate"

func (c *Cause) validate() error {
	if c.What != Truncate || len(c.Tables) == 0 {
		return fmt.Errorf("the cause %q of %d tables is none", c.What, len(c.Tables))
	}
	return c.Record.validate()
}

// Target is whose keys are meant: exactly one field is set.
type Target struct {
	Shard   string     `json:"shard,omitempty"`
	Node    string     `json:"node,omitempty"` // host:port
	Range   *HashRange `json:"range,omitempty"`
	Pool    string     `json:"pool,omitempty"`
	Mapping string     `json:"mapping,omitempty"` // team/name
}

// HashRange is a part of the ring: hashes h with From < h <= To, wrapping where From >= To.
type HashRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func (t Target) count() int {
	n := 0
	for _, set := range []bool{t.Shard != "", t.Node != "", t.Range != nil, t.Pool != "", t.Mapping != ""} {
		if set {
			n++
		}
	}
	return n
}

// Plan is a record of kind "plan" on the control topic: the partitions and offsets of a replay by hand, written once by
// the owner of the work partition of its id. The first plan of an id wins.
type Plan struct {
	ID     string    `json:"id"` // of the request
	At     time.Time `json:"at"`
	Ranges []Range   `json:"ranges"`
}

// Range is a part of one partition of the log: offsets o with From <= o < To.
type Range struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func (r Range) validate() error {
	if r.Topic == "" || r.Partition < 0 || r.From < 0 || r.To < r.From {
		return fmt.Errorf("the range %s/%d [%d, %d) is none", r.Topic, r.Partition, r.From, r.To)
	}
	return nil
}

var errNoID = errors.New("it has no id")

func (r Request) validate() error {
	if r.ID == "" {
		return errNoID
	}
	targets := r.Target.count()
	if r.Cause != nil {
		if r.Action != Flush {
			return fmt.Errorf("a %s has no cause", r.Action)
		}
		if err := r.Cause.validate(); err != nil {
			return err
		}
	}
	switch r.Action {
	case Replay:
		if targets != 1 || r.Of != "" || r.From.IsZero() {
			return errors.New("a replay needs one target and from")
		}
		if !r.To.IsZero() && r.To.Before(r.From) {
			return errors.New("its window ends before it begins")
		}
	case Flush:
		if targets != 1 || r.Of != "" || r.Target.Pool == "" && r.Target.Node == "" {
			return errors.New("a flush needs a pool or a node")
		}
	case Cancel:
		if r.Of == "" || targets != 0 {
			return errors.New("a cancel needs the id of what is cancelled")
		}
	case Pause, Resume:
		if (r.Of == "") == (targets == 0) || targets > 0 && r.Target.Pool == "" {
			return fmt.Errorf("a %s needs the id of a flush, or a pool", r.Action)
		}
	default:
		return fmt.Errorf("unknown action %q", r.Action)
	}
	return nil
}

func (p Plan) validate() error {
	if p.ID == "" {
		return errNoID
	}
	for _, r := range p.Ranges {
		if err := r.validate(); err != nil {
			return err
		}
	}
	return nil
}
