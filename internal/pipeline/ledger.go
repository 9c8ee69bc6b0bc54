package pipeline

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/mapping"
)

// ledger holds the debts of one partition: what copies lack, as ranges of the log. The partition's goroutine, its passes, the nodes'
// goroutines and whoever commits use it.
//
// Why a state record may be taken at any time, the watermark first and the ledger afterwards: a debt is here before the change that
// it covers can be finished (change.Acked, change.issue), and goes only when it is paid. So the later ledger covers the earlier watermark.
type ledger struct {
	revision *atomic.Uint64                      // of what the partition keeps: raised with every change
	owing    atomic.Pointer[map[string]struct{}] // nodes whose debt is open; never changed in place, nil for none
	due      [passKinds]atomic.Int64             // debts that a pass can pay
	closings atomic.Int64                        // how often a debt was closed
	wide     atomic.Int64                        // debts of pools, storms and templates
	again    atomic.Int64                        // debts of what is done again, and those of them that were paid and not told yet
	changes  atomic.Int64                        // how often a debt came, went, opened or closed

	mu struct { // a leaf
		sync.Mutex
		debts    map[debtID]*debt
		versions uint64 // the highest given
		paid     []debt // of what is done again, since they were last told
	}
}

func newLedger(revision *atomic.Uint64, was []Debt) *ledger {
	l := &ledger{revision: revision}
	l.mu.debts = make(map[debtID]*debt, len(was))
	for _, r := range was {
		d := debtOf(r)
		l.mu.debts[d.debtID] = d
	}
	l.gather()
	return l
}

// openNodes are the nodes whose debt is open. Read only; a caller sees at worst what was so a moment ago: what it then sends to a
// node that is off is refused, and owed.
func (l *ledger) openNodes() map[string]struct{} {
	if m := l.owing.Load(); m != nil {
		return *m
	}
	return nil
}

// gather makes openNodes and the counts anew. It is called under the lock when a debt came, went, opened or closed.
func (l *ledger) gather() {
	var open map[string]struct{}
	var due [passKinds]int64
	wide, again := int64(0), int64(len(l.mu.paid))
	for id, d := range l.mu.debts {
		if id.wide() {
			wide++
		}
		if id.again() {
			again++
		}
		if !d.open() {
			due[passOf(id.kind)]++
		} else if id.kind == KindNode {
			if open == nil {
				open = map[string]struct{}{}
			}
			open[id.name] = struct{}{}
		}
	}
	for k := range due {
		l.due[k].Store(due[k])
	}
	l.wide.Store(wide)
	l.again.Store(again)
	l.changes.Add(1)
	if open == nil {
		l.owing.Store(nil)
	} else {
		l.owing.Store(&open)
	}
}

// owe opens a node's debt, or opens it again: a delete of offset is lost, or may be. It reports whether the node is to be asked for an
// answer; else that was done before.
func (l *ledger) owe(node string, offset int64, at time.Time, s *Snapshot) (ask bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, _ := l.openDebt(debtID{KindNode, node}, offset, at, s)
	ask, d.probing = !d.probing, true
	return ask
}

// openAt opens the debt of a template or a pool at offset, or opens it again, before the change at offset is taken or passed by. written is
// when the record there was; under is of a template. It reports whether that is news.
func (l *ledger) openAt(id debtID, offset int64, written time.Time, under string, s *Snapshot) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.mu.debts[id]
	stood := was != nil && was.open()
	d, news := l.openDebt(id, offset, time.Now(), s)
	if news && d.from == offset {
		d.at = written
	}
	if !stood { // else it waits for another file than the one that it was opened under
		d.under = under
	}
	return news
}

// openDebt is called under the lock. It reports whether the debt says more than before.
func (l *ledger) openDebt(id debtID, offset int64, at time.Time, s *Snapshot) (d *debt, news bool) {
	if d = l.mu.debts[id]; d == nil {
		d = newDebt(id, offset, at, s)
		l.mu.debts[id] = d
	}
	l.mu.versions++
	d.version = l.mu.versions
	if at.Before(d.since) { // it is known later when a node was missed first
		d.since = at
		l.revision.Add(1)
	}
	if d.open() && d.from <= offset {
		return d, false // it says so already
	}
	d.lower(offset, s)
	if !d.open() {
		d.to = openEnd
		l.gather()
	}
	l.revision.Add(1)
	return d, true
}

// stretch has a pool's storm owe offset, before the change there is taken: the debt is made, or its end is moved. It is always closed, since
// the live path knows what else it owes.
//
// A pass that has taken it goes on paying: it is told of no offset below its own end, and pay counts nothing above that.
func (l *ledger) stretch(pool string, offset int64, written time.Time, s *Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := debtID{KindStorm, pool}
	d := l.mu.debts[id]
	switch {
	case d == nil:
		d = newDebt(id, offset, time.Now(), s)
		d.to, d.at = offset+1, written
		l.mu.debts[id] = d
		l.gather()
		l.closings.Add(1)
	case offset < d.from: // the offset went back with a commit that failed
		d.lower(offset, s)
		d.at = written
		l.mu.versions++
		d.version = l.mu.versions
	case offset < d.to:
		return
	default:
		d.to = offset + 1
	}
	l.revision.Add(1)
}

// openAgain opens the debt of what is done again, or adds to it. It is closed from the beginning. False: there is nothing to be done.
func (l *ledger) openAgain(id debtID, ranges spans, o *Order, s *Snapshot) bool {
	if len(ranges) == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.debts[id]
	if d == nil {
		d = newDebt(id, ranges[0][0], time.Now(), s)
		l.mu.debts[id] = d
	} else {
		ranges = joined(append(d.spans.from(d.from), ranges...))
		d.lower(ranges[0][0], s)
		d.at = time.Time{}
	}
	d.spans, d.to = ranges, ranges[len(ranges)-1][1]
	if d.order = o; o != nil {
		d.target = targetOf(o)
	}
	l.mu.versions++
	d.version = l.mu.versions
	l.gather()
	l.closings.Add(1)
	l.revision.Add(1)
	return true
}

// remove takes a debt out that is not to be paid any more, and reports whether it was there.
func (l *ledger) remove(id debtID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.debts[id] == nil {
		return false
	}
	delete(l.mu.debts, id)
	l.gather()
	l.revision.Add(1)
	return true
}

// takePaid are the debts of what is done again that were paid since it was last called, as they were then.
func (l *ledger) takePaid() (paid []debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if paid, l.mu.paid = l.mu.paid, nil; len(paid) > 0 {
		l.gather()
	}
	return paid
}

// of is a debt as it is now.
func (l *ledger) of(id debtID) (d debt, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is := l.mu.debts[id]; is != nil {
		return *is, true
	}
	return d, false
}

// withhold says that a round of offset does not go to a node, since its debt is open and has offset from now on. False: it is open no
// more.
func (l *ledger) withhold(node string, offset int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.debts[debtID{KindNode, node}]
	if d == nil || !d.open() {
		return false
	}
	if offset < d.from {
		d.from = offset
		l.revision.Add(1)
	}
	return true
}

// answered closes a node's debt: what is issued from next on goes to it again. Only the partition's goroutine, which issues, calls it.
func (l *ledger) answered(node string, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.debts[debtID{KindNode, node}]; d != nil {
		d.probing = false
		l.close(d, next)
	}
}

// unasked says that nobody waits for a node's answer any more.
func (l *ledger) unasked(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.debts[debtID{KindNode, node}]; d != nil {
		d.probing = false
	}
}

// closeAt closes a debt of any kind: offsets from next on are not in it.
func (l *ledger) closeAt(kind, name string, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.debts[debtID{kind, name}]; d != nil {
		l.close(d, next)
	}
}

// close is called under the lock.
func (l *ledger) close(d *debt, next int64) {
	if !d.open() {
		return
	}
	l.mu.versions++
	d.to, d.version = next, l.mu.versions
	if d.from >= d.to { // nothing came, or the offset went back with a commit that failed: all of it is issued again
		delete(l.mu.debts, d.debtID)
	}
	l.gather()
	l.closings.Add(1)
	l.revision.Add(1)
}

// toAsk are the nodes whose debt is open and whose answer nobody waits for yet; from now on somebody does.
func (l *ledger) toAsk() (nodes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, d := range l.mu.debts {
		if id.kind == KindNode && d.open() && !d.probing {
			d.probing = true
			nodes = append(nodes, id.name)
		}
	}
	return nodes
}

// closed are the debts that a pass can pay, as they are now.
func (l *ledger) closed(which func(debtID) bool) (ds []debt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, d := range l.mu.debts {
		if !d.open() && which(id) {
			ds = append(ds, *d)
		}
	}
	return ds
}

// reach notes that a pass is about to issue what lies below offset, for the debts that it took.
func (l *ledger) reach(taken []debt, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range taken {
		if d := l.mu.debts[taken[i].debtID]; d != nil {
			d.reached = max(d.reached, offset)
		}
	}
}

// left reports whether the delete of k that offset owes is left to another pass, since a debt of a higher rank covers it: that one's pass
// reaches all its copies too. One that may have issued it already counts for nothing: a copy that it could not reach is in a node's
// debt, which is why it is looked at now. Nor does a template's: that owes what was not rendered, and here is a key.
func (l *ledger) left(rank int, offset int64, k *mapping.Key) bool {
	if l.wide.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, d := range l.mu.debts {
		if id.kind != KindTemplate && id.rank() > rank && offset >= d.reached && d.covers(offset, k) {
			return true
		}
	}
	return false
}

// pay notes that a pass has finished its rounds of everything below mark, where a record was written at about at. It counts for those of the
// debts that it took which nothing has touched since, and up to the end that they had then; it returns how many of these are left.
func (l *ledger) pay(taken []debt, mark int64, at time.Time) (left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	paid := false
	for i := range taken {
		d := l.mu.debts[taken[i].debtID]
		if d == nil || d.version != taken[i].version {
			continue
		}
		if d.counts != taken[i].counts {
			d.counts = taken[i].counts
			l.revision.Add(1)
		}
		if m := min(mark, taken[i].to); m > d.from {
			d.from = m
			if !at.IsZero() {
				d.at = at
			}
			l.revision.Add(1)
		}
		if d.from >= d.to {
			delete(l.mu.debts, d.debtID)
			paid = true
			if d.again() {
				l.mu.paid = append(l.mu.paid, *d)
			}
			continue
		}
		left++
	}
	if paid {
		l.gather()
	}
	return left
}

// forget removes the debts of nodes that nothing names any more: what they held has expired.
func (l *ledger) forget(named func(node string) bool) (gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.mu.debts {
		if id.kind == KindNode && !named(id.name) {
			delete(l.mu.debts, id)
			gone = append(gone, id.name)
		}
	}
	if len(gone) > 0 {
		l.gather()
		l.revision.Add(1)
	}
	return gone
}

// wideDebts are those of pools, storms and templates.
func (l *ledger) wideDebts() (ds []debt) {
	if l.wide.Load() == 0 {
		return nil
	}
	for _, d := range l.all() {
		if d.wide() {
			ds = append(ds, d)
		}
	}
	return ds
}

// doneAgain are those of what is done again, in order.
func (l *ledger) doneAgain() (ds []debt) {
	for _, d := range l.all() {
		if d.again() {
			ds = append(ds, d)
		}
	}
	slices.SortFunc(ds, func(a, b debt) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) })
	return ds
}

// all are the debts as they are now, in no order.
func (l *ledger) all() []debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	ds := make([]debt, 0, len(l.mu.debts))
	for _, d := range l.mu.debts {
		ds = append(ds, *d)
	}
	return ds
}

// list is for the state record, in order.
func (l *ledger) list() []Debt {
	ds := l.all()
	records := make([]Debt, len(ds))
	for i := range ds {
		records[i] = ds[i].record()
	}
	slices.SortFunc(records, byID)
	return records
}
