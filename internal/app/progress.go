package app

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"invalidator/replay"
)

// Kinds of work.
const (
	KindReplay = "replay"
	KindFlush  = "flush"
	KindEpoch  = "epoch" // what a change of the ring makes done again: promotions and moves
)

// WorkState is how it stands with a work.
type WorkState string

const (
	WorkWaiting    WorkState = "waiting"    // nobody has begun it
	WorkRunning    WorkState = "running"    //
	WorkPaused     WorkState = "paused"     // somebody paused it
	WorkDone       WorkState = "done"       //
	WorkIncomplete WorkState = "incomplete" // it ended, and did not do all that was asked for: Lost, or Why, says what
	WorkFailed     WorkState = "failed"     // it ended with an error: Why
	WorkRefused    WorkState = "refused"    // nothing was done: Why
	WorkCancelled  WorkState = "cancelled"  //
	WorkExpired    WorkState = "expired"    // nobody began it in time
)

// Ended says that nothing more comes of it.
func (s WorkState) Ended() bool { return s != WorkWaiting && s != WorkRunning && s != WorkPaused }

// Good says that all that was asked for was done.
func (s WorkState) Good() bool { return s == WorkDone }

// Work is a replay, a flush, or what a change of the ring makes done again, as the control and status topics tell of it. Its JSON form is stable.
type Work struct {
	ID    string    `json:"id"`
	Kind  string    `json:"kind"` // replay, flush, epoch
	State WorkState `json:"state"`
	Why   string    `json:"why,omitempty"` // it was refused, failed, or waits

	// What was asked for, by whom:
	Target  replay.Target `json:"target,omitzero"`
	Window  replay.Window `json:"window,omitempty"`
	From    time.Time     `json:"from,omitzero"`
	To      time.Time     `json:"to,omitzero"`
	DryRun  bool          `json:"dry_run,omitempty"`
	By      string        `json:"by,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	At      time.Time     `json:"at,omitzero"`
	Expires time.Time     `json:"expires,omitzero"`
	Cause   *replay.Cause `json:"cause,omitempty"`
	replay.Options
	PausedBy    string `json:"paused_by,omitempty"`
	CancelledBy string `json:"cancelled_by,omitempty"`

	// How far it is:
	Job    string    `json:"job,omitempty"`    // of a flush: the job that does it
	Limit  float64   `json:"limit,omitempty"`  // of a flush: of the load
	Shards []string  `json:"shards,omitempty"` // of an epoch: those that were promoted
	Begun  time.Time `json:"begun,omitzero"`
	Last   time.Time `json:"last,omitzero"`   // when something was told of it last
	Ended  time.Time `json:"ended,omitzero"`  //
	Round  int       `json:"round,omitempty"` // of a flush: all is done anew in each; done and all are of this one
	Unit   string    `json:"unit"`            // of done and all: records of the log, or parts of nodes' keys
	Done   int64     `json:"done"`
	All    int64     `json:"all"`            // of what has begun; 0: not known
	Left   int64     `json:"left,omitempty"` // seconds, at the pace so far; 0: not known, or it waits, or in a later round
	Keys   int64     `json:"keys"`
	Copies int64     `json:"copies"`
	Kept   int64     `json:"kept,omitempty"`  // of a flush: keys that were filled after it began
	Owed   int64     `json:"owed,omitempty"`  // keys that were left to a pool's debt
	Lost   int64     `json:"lost,omitempty"`  // records that the log no longer held
	Takes  int64     `json:"takes,omitempty"` // of a flush's dry run: seconds that it takes at the least

	Parts []WorkPart `json:"parts,omitempty"` // only where one work is asked for
}

// WorkPart is a partition of a replay, or a part of a flush on one node. Its JSON form is stable.
type WorkPart struct {
	Topic     string    `json:"topic,omitempty"`
	Partition int32     `json:"partition,omitempty"`
	From      int64     `json:"from,omitempty"`
	To        int64     `json:"to,omitempty"`
	Offset    int64     `json:"offset,omitempty"`
	Part      string    `json:"part,omitempty"` // "2/4": the second quarter of the node's keys, by hash
	Node      string    `json:"node,omitempty"`
	Round     int       `json:"round,omitempty"`
	Keys      int64     `json:"keys"`
	Copies    int64     `json:"copies"`
	Kept      int64     `json:"kept,omitempty"`
	Owed      int64     `json:"owed,omitempty"`
	Lost      int64     `json:"lost,omitempty"`
	Waits     string    `json:"waits,omitempty"` // why it does not go on
	Done      bool      `json:"done"`
	Worker    string    `json:"worker"`
	At        time.Time `json:"at"`

	n int // of the part
}

// Units of a work's Done and All.
const (
	UnitRecords = "records"
	UnitParts   = "parts"
)

// Share is how much of it is done, from 0 to 1; false where that is not known.
func (w *Work) Share() (float64, bool) {
	switch {
	case w.State.Good():
		return 1, true
	case w.All == 0:
		return 0, false
	}
	return float64(min(w.Done, w.All)) / float64(w.All), true
}

// told is how far a work is, as progress records tell it.
func (w *Work) told(parts []replay.Progress) {
	w.Unit = UnitRecords
	if w.Kind == KindFlush {
		w.Unit = UnitParts
	}
	var waits, done time.Time // when the newest part that waits, and one that is done, were told of
	for _, p := range parts {
		switch {
		case p.Done:
			done = maxTime(done, p.At)
		case !p.At.Before(waits):
			w.Why, waits = p.Waits, p.At
		}
		w.Keys, w.Copies, w.Kept, w.Owed, w.Lost = w.Keys+p.Keys, w.Copies+p.Copies, w.Kept+p.Kept, w.Owed+p.Owed, w.Lost+p.Lost
		w.Last = maxTime(w.Last, p.At)
		w.Shards = append(w.Shards, p.Shards...)
		if p.Part == nil {
			w.All += p.Range.To - p.Range.From
			w.Done += p.Offset - p.Range.From
			if p.Done {
				w.Done += p.Range.To - p.Offset
			}
		}
	}
	if w.Kind == KindFlush && done.After(waits) { // one process conducts all of it: it has gone on since
		w.Why = ""
	}
	slices.Sort(w.Shards)
	w.Shards = slices.Compact(w.Shards)
}

// workParts shows progress records, in order.
func workParts(parts []replay.Progress) []WorkPart {
	out := make([]WorkPart, 0, len(parts))
	for _, p := range parts {
		x := WorkPart{Keys: p.Keys, Copies: p.Copies, Kept: p.Kept, Owed: p.Owed, Lost: p.Lost, Waits: p.Waits, Done: p.Done, Worker: p.Worker, At: p.At, Node: p.Node, Round: p.Round}
		if p.Part != nil {
			x.Part, x.n = p.Part.String(), p.Part.N
		} else {
			x.Topic, x.Partition, x.From, x.To, x.Offset = p.Range.Topic, p.Range.Partition, p.Range.From, p.Range.To, p.Offset
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b WorkPart) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), strings.Compare(a.Node, b.Node), cmp.Compare(a.n, b.n), cmp.Compare(a.Round, b.Round))
	})
	return out
}
