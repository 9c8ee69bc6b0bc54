package pipeline

import (
	"cmp"
	"math"
	"slices"
	"time"

	"invalidator/mapping"
	"invalidator/sink"
)

// Kinds of debts: who owes, and with it which copies a debt covers.
const (
	KindNode     = "node"     // every copy on the node
	KindTemplate = "template" // keys of the mapping
	KindPool     = "pool"     // keys of the pool
	KindStorm    = "storm"    // keys of the pool, paid by a pass of its own
)

// Debt is the deletes that somebody still owes, as a range of this partition's log and never as a list of keys.
type Debt struct {
	Kind        string    `json:"kind"` // node, template, pool, storm
	Name        string    `json:"name"` // host:port, a pool, or of a mapping: team/mapping
	From        int64     `json:"from"`
	To          *int64    `json:"to"`           // null: open, what comes is owed too
	Since       time.Time `json:"since"`        // when it was opened first
	Epoch       int64     `json:"epoch"`        // of the ring record then, or an earlier one when it was opened again
	HotRevision int64     `json:"hot_revision"` // the same

	// At is about when the record at From was written; zero where that is not known: no later than Since.
	At time.Time `json:"at,omitzero"`
	// Under is of a template: the print of its file when it was opened. It is closed where that is another.
	Under string `json:"under,omitempty"`
}

// openEnd is the end of a debt that is open.
const openEnd = math.MaxInt64

// debtID is whose debt it is: a partition has one of each.
type debtID struct{ kind, name string }

// debt is a Debt in memory.
type debt struct {
	debtID
	from, to        int64 // [from, to); to may be openEnd
	since           time.Time
	epoch, revision int64
	version         uint64 // raised by all that a pass which took the debt before cannot pay
	probing         bool   // of a node: its answer is waited for
	reached         int64  // of any other kind: a pass may have issued what lies below, and may not yet have its acknowledgements
	at              time.Time
	under           string
}

func newDebt(id debtID, offset int64, since time.Time, s *Snapshot) *debt {
	return &debt{debtID: id, from: offset, since: since, epoch: s.View.Topology.Epoch(), revision: s.View.Hot.Revision()}
}

// lower has the debt begin no later than offset, under what is in force.
func (d *debt) lower(offset int64, s *Snapshot) {
	d.from = min(d.from, offset)
	d.epoch, d.revision = min(d.epoch, s.View.Topology.Epoch()), min(d.revision, s.View.Hot.Revision())
}

func (d *debt) open() bool { return d.to == openEnd }

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
	r := Debt{Kind: d.kind, Name: d.name, From: d.from, Since: d.since, Epoch: d.epoch, HotRevision: d.revision, At: d.at, Under: d.under}
	if !d.open() {
		to := d.to
		r.To = &to
	}
	return r
}

func debtOf(r Debt) *debt {
	d := &debt{debtID: debtID{r.Kind, r.Name}, from: r.From, to: openEnd, since: r.Since, epoch: r.Epoch, revision: r.HotRevision, at: r.At, under: r.Under}
	if r.To != nil {
		d.to = *r.To
	}
	return d
}

// rank orders the kinds: a pass that pays one leaves keys to the debts of a higher kind that it does not pay, and never the other way
// round, so that no key is left by two to each other.
func (id debtID) rank() int {
	switch id.kind {
	case KindNode:
		return 0
	case KindStorm: // what a pool that was paused has of a storm is paid at the storm's pace
		return 2
	}
	return 1
}

func byID(a, b Debt) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) }
