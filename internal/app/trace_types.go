package app

import (
	"time"

	"invalidator/cdc"
)

// Trace is what became of a key in a window. Its JSON form is stable. Lists of what happened are in the order of time, newest last.
type Trace struct {
	Key         string `json:"key"`                  // as clients name it, with U+FFFD for what is no UTF-8
	KeyBase64   string `json:"key_base64,omitempty"` // as shown elsewhere: only where key does not show it
	HotOf       string `json:"hot_of,omitempty"`     // of a hot copy's name (key#3): the key, which is traced with it
	Pool        string `json:"pool"`
	Team        string `json:"team"`
	Contact     string `json:"contact,omitempty"`
	Underivable bool   `json:"underivable,omitempty"` // no row gives keys of the pool
	Paused      bool   `json:"paused,omitempty"`      // the pool is, now

	Group string    `json:"group"`
	Asked time.Time `json:"asked"`
	Since time.Time `json:"since"` // the window
	Until time.Time `json:"until"`
	Read  TraceRead `json:"read"`

	Ring    *TraceRing     `json:"ring,omitempty"` // none: no worker has written a ring record down
	Copies  []TraceCopy    `json:"copies"`         // today's first
	Changes []*TraceChange `json:"changes"`
	Earlier int64          `json:"earlier,omitempty"` // changes of the window that are left out, the oldest
	Touched []TraceTouch   `json:"touched"`           // what else happened that concerns the key
	Unknown []string       `json:"unknown"`           // what cannot be known, and why
	Verdict TraceVerdict   `json:"verdict"`
}

// TraceRead is what of the log was read.
type TraceRead struct {
	Topics     int   `json:"topics"` // of those that may hold changes of the pool
	Partitions int   `json:"partitions"`
	Records    int64 `json:"records"`
	Of         int64 `json:"of"`
	Stopped    bool  `json:"stopped,omitempty"` // before its end, by whoever asked
}

// TraceRing is where the key is under the newest ring record.
type TraceRing struct {
	Epoch int64  `json:"epoch"`
	Shard string `json:"shard"`
	Hash  int64  `json:"hash"`
}

// TraceCopy is a place that may hold the key's value: under the newest ring record, or one that was in force within cache.max_ttl.
type TraceCopy struct {
	Node      string  `json:"node"`
	Key       string  `json:"key"` // as the node has it
	KeyBase64 string  `json:"key_base64,omitempty"`
	Role      string  `json:"role"`   // under the newest of Epochs: primary, replica, previous (an owner before the resize that is under way)
	Today     bool    `json:"today"`  // under the newest record
	Epochs    []int64 `json:"epochs"` // of the records under which it is a copy, newest first
}

// TraceChange is a change in the log that gave the key.
type TraceChange struct {
	Source    string       `json:"source"`
	Table     string       `json:"table,omitempty"`
	Op        string       `json:"op"`
	Committed time.Time    `json:"committed,omitzero"` // in the database; missing where the record does not say it
	Position  cdc.Position `json:"position,omitzero"`  // in the source's log
	Tx        string       `json:"tx,omitempty"`

	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Written   time.Time `json:"written"`         // to the topic
	Again     string    `json:"again,omitempty"` // it was there before, and was written again: why

	Sent     *TraceSent      `json:"sent,omitempty"` // of a key that somebody sent
	By       []TraceTemplate `json:"by"`
	Issued   []TraceIssue    `json:"issued"`
	Finished bool            `json:"finished"` // below the group's committed offset: deleted on every copy, but for what is owed
	Behind   int64           `json:"behind,omitempty"`
	Owed     []TraceOwed     `json:"owed,omitempty"`
	Late     []TraceLate     `json:"late,omitempty"`
	Parked   []TraceParked   `json:"parked,omitempty"`
	Replays  []string        `json:"replays,omitempty"` // ids of those whose plan has its offset
	Redone   time.Time       `json:"redone,omitzero"`   // the mappings that were in force did not give the key: when a replay was done under some that do
	State    TraceState      `json:"state"`
}

// TraceState is what became of a change.
type TraceState string

const (
	TraceDeleted TraceState = "deleted" // on every copy
	TraceLater   TraceState = "late"    // on every copy, on some of them long after the commit
	TraceOwes    TraceState = "owed"    // but for copies that somebody owes
	TraceWaits   TraceState = "waiting" // no worker is done with it
	TraceParks   TraceState = "parked"  // its record is among the dead letters
	TraceMissed  TraceState = "missed"  // the mappings that were in force then did not give the key
	TraceShadow  TraceState = "shadow"  // only templates in shadow give it: nothing is deleted
	TraceFlush   TraceState = "flush"   // its table was emptied: the pool is flushed, and no delete is issued
)

// TraceSent is who sent a key, and why.
type TraceSent struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// TraceTemplate is a template that gave the key.
type TraceTemplate struct {
	Team     string   `json:"team"`
	Mapping  string   `json:"mapping,omitempty"` // empty: a writer sent the key itself
	Template string   `json:"template"`
	Action   string   `json:"action"`
	Shadow   bool     `json:"shadow,omitempty"`
	Mappings []string `json:"mappings"` // fingerprints of the sets under which it does
	Today    bool     `json:"today"`    // today's is one of them
}

// TraceIssue is when workers issued the deletes of a range of offsets that has the change's. The journal keeps a line a second, and of what is
// older a line a minute.
type TraceIssue struct {
	Lane     string    `json:"lane"`
	From     time.Time `json:"from"` // it was between From and To that the first of it was
	To       time.Time `json:"to"`
	Until    time.Time `json:"until"` // lines go on having it until then: further rounds, its last acknowledgement, or those of changes around it
	Epoch    int64     `json:"epoch"` // of the ring record
	Mappings string    `json:"mappings"`
	Maybe    bool      `json:"maybe,omitempty"` // a pass: it went over the offset, and may have had nothing to do there
}

// TraceOwed is who still owes deletes of a change.
type TraceOwed struct {
	Kind  string    `json:"kind"` // node, template, pool, storm, epoch, replay
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
	Open  bool      `json:"open"` // what comes is owed too: the node is off, the pool paused
}

// TraceLate is a node that was off when the change was issued, and has paid since.
type TraceLate struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Back  time.Time `json:"back,omitzero"`
	Paid  time.Time `json:"paid,omitzero"` // all that it owed; missing where nobody said so
}

// TraceParked is a dead letter of a change's record.
type TraceParked struct {
	ID       string    `json:"id"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
	Decision string    `json:"decision,omitempty"` // retried or discarded

	mine bool // it is about the key, not about another of the record
}

// TraceTouch is something that concerns the key besides its changes.
type TraceTouch struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // ring, node, replay, flush, pause, storm, mapping, gap, parked
	ID     string    `json:"id,omitempty"`
	What   string    `json:"what"` // for a person
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// TraceVerdict is the answer in a line.
type TraceVerdict struct {
	Word string `json:"word"` // as a TraceState, the worst of them; or nothing: no change gave the key
	Text string `json:"text"`
}
