package pipeline

import (
	"cmp"
	"math"
	"slices"
	"time"

	"invalidator/cdc"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
)

// Kinds of debts: who owes, and with it which copies a debt covers.
const (
	KindNode     = "node"     // every copy on the node
	KindTemplate = "template" // keys of the mapping
	KindPool     = "pool"     // keys of the pool
	KindStorm    = "storm"    // keys of the pool, paid by a pass of its own
	KindEpoch    = "epoch"    // keys that moved between two ring records; <epoch>-<epoch>
	KindReplay   = "replay"   // keys that a request by hand takes in; its id
)

// Debt is the deletes that somebody still owes, as a range of this partition's log and never as a list of keys.
type Debt struct {
	Kind        string    `json:"kind"` // node, template, pool, storm, epoch, replay
	Name        string    `json:"name"` // host:port, a pool, of a mapping: team/mapping, 7-8, or a request's id
	From        int64     `json:"from"`
	To          *int64    `json:"to"`           // null: open, what comes is owed too
	Since       time.Time `json:"since"`        // when it was opened first
	Epoch       int64     `json:"epoch"`        // of the ring record then, or an earlier one when it was opened again
	HotRevision int64     `json:"hot_revision"` // the same

	// At is about when the record at From was written; zero where that is not known: no later than Since.
	At time.Time `json:"at,omitzero"`
	// Under is of a template: the print of its file when it was opened. It is closed where that is another.
	Under string `json:"under,omitempty"`

	// Of what is done again, an epoch or a replay:
	Spans  [][2]int64 `json:"spans,omitempty"`  // what of [From, To) it covers: offsets [from, to), in order
	Order  *Order     `json:"order,omitempty"`  // of a replay
	Keys   int64      `json:"keys,omitempty"`   // how many were issued so far, or would be; again after a crash counts again
	Copies int64      `json:"copies,omitempty"` // of these, in one round
	Owed   int64      `json:"owed,omitempty"`   // keys that were left to the debt of their pool
	Lost   int64      `json:"lost,omitempty"`   // offsets that the log no longer held, or whose mappings stand nowhere any more
}

// Order is a replay by hand as a partition acts on it, so that its debt alone is enough for whoever pays it.
type Order struct {
	ID     string        `json:"id"` // of the request
	Target replay.Target `json:"target"`
	Issued bool          `json:"issued,omitempty"` // the window is by when something was issued: all of the debt's spans. Else by when it was committed
	From   time.Time     `json:"from"`             // the window
	To     time.Time     `json:"to"`
	Sent   [][2]int64    `json:"sent,omitempty"` // not Issued: offsets of which something was issued in the window: they count whenever they were committed
	DryRun bool          `json:"dry_run,omitempty"`
	Mark   ControlMark   `json:"mark"` // behind its plan

	// Range is what the plan says of the partition, until its spans are known. It is not kept.
	Range replay.PlanRange `json:"-"`
}

// ControlMark is a place in the control topic.
type ControlMark struct {
	Topic  string `json:"topic"`  // its id, in base64; empty: not known
	Offset int64  `json:"offset"` // everything below
}

// targetFunc reports whether a replay covers the delete of a key that the record at offset owes: the key is of its target, and the change of its window.
// copies and hot are the key's under today.
type targetFunc func(k *mapping.Key, copies []sink.Copy, hot int, row *cdc.RowChange, offset int64, written time.Time, today *Snapshot) bool

// openEnd is the end of a debt that is open.
const openEnd = math.MaxInt64

// debtID is whose debt it is: a partition has one of each.
type debtID struct{ kind, name string }

// again reports whether it is of something that is done again, rather than of something that was missed.
func (id debtID) again() bool { return id.kind == KindEpoch || id.kind == KindReplay }

// debt is a Debt in memory.
type debt struct {
	debtID
	from, to        int64 // [from, to); to may be openEnd
	since           time.Time
	epoch, revision int64
	version         uint64 // raised by all that a pass which took the debt before cannot pay
	probing         bool   // of a node: its answer is waited for
	reached         int64  // of a pool, a storm or a template: a pass may have issued what lies below, and may not yet have its acknowledgements
	at              time.Time
	under           string

	// Of what is done again.
	spans  spans // never changed in place
	order  *Order
	target targetFunc  // of a replay
	moves  *epochMoves // of an epoch; set by the pass that pays it
	counts counts
}

// counts are of what was done again.
type counts struct{ keys, copies, owed, lost int64 }

func newDebt(id debtID, offset int64, since time.Time, s *Snapshot) *debt {
	return &debt{debtID: id, from: offset, since: since, epoch: s.View.Topology.Epoch(), revision: s.View.Hot.Revision()}
}

// lower has the debt begin no later than offset, under what is in force.
func (d *debt) lower(offset int64, s *Snapshot) {
	d.from = min(d.from, offset)
	d.epoch, d.revision = min(d.epoch, s.View.Topology.Epoch()), min(d.revision, s.View.Hot.Revision())
}

func (d *debt) open() bool { return d.to == openEnd }

// has reports whether an offset is in it.
func (d *debt) has(offset int64) bool {
	return d.from <= offset && offset < d.to && (d.spans == nil || d.spans.has(offset))
}

// covers reports whether the delete of k that the record at offset owes is in the debt, whatever node it goes to.
func (d *debt) covers(offset int64, k *mapping.Key) bool {
	if offset < d.from || offset >= d.to {
		return false
	}
	switch d.kind {
	case KindPool, KindStorm:
		return k.Template.Pool == d.name
	case KindTemplate:
		return k.Template.Mapping != "" && k.Template.Owner() == d.name
	}
	return false
}

// coversCopy is covers for a node's debt: it is about copies.
func (d *debt) coversCopy(offset int64, copies []sink.Copy) bool {
	return d.kind == KindNode && offset >= d.from && offset < d.to &&
		slices.ContainsFunc(copies, func(c sink.Copy) bool { return c.Node == d.name })
}

func (d *debt) record() Debt {
	r := Debt{Kind: d.kind, Name: d.name, From: d.from, Since: d.since, Epoch: d.epoch, HotRevision: d.revision, At: d.at, Under: d.under,
		Spans: d.spans.from(d.from), Order: d.order, Keys: d.counts.keys, Copies: d.counts.copies, Owed: d.counts.owed, Lost: d.counts.lost}
	if !d.open() {
		to := d.to
		r.To = &to
	}
	return r
}

func debtOf(r Debt) *debt {
	d := &debt{debtID: debtID{r.Kind, r.Name}, from: r.From, to: openEnd, since: r.Since, epoch: r.Epoch, revision: r.HotRevision, at: r.At, under: r.Under,
		spans: r.Spans, order: r.Order, counts: counts{r.Keys, r.Copies, r.Owed, r.Lost}}
	if r.To != nil {
		d.to = *r.To
	}
	if r.Order != nil {
		d.target = targetOf(r.Order)
	}
	return d
}

// rank orders the kinds: a pass that pays one leaves keys to the debts of a higher kind that it does not pay, and never the other way
// round, so that no key is left by two to each other.
func (id debtID) rank() int {
	switch id.kind {
	case KindNode, KindEpoch, KindReplay:
		return 0
	case KindStorm: // what a pool that was paused has of a storm is paid at the storm's pace
		return 2
	}
	return 1
}

// wide reports whether the live path and other passes look for it.
func (id debtID) wide() bool { return id.rank() > 0 }

func byID(a, b Debt) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) }
