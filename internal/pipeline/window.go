package pipeline

// queue holds changes in order; both ends cost the same however long it is.
type queue struct {
	items []*change // [head:] are held
	head  int
}

func (q *queue) push(c *change) { q.items = append(q.items, c) }
func (q *queue) len() int       { return len(q.items) - q.head }

// front returns the first change; there must be one.
func (q *queue) front() *change { return q.items[q.head] }

// pop drops the first change.
func (q *queue) pop() {
	q.items[q.head] = nil
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head > 1024 && q.head > len(q.items)/2: // give the room of what was popped back
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// window holds a partition's changes in flight in the order of their offsets, and knows how far everything is finished.
type window struct {
	changes queue // in flight, or finished out of order
	next    int64 // one past the last record taken
	fresh   int   // so many of the first changes are fresh
}

// take notes that the record at offset was taken; c is nil where it owes nothing.
func (w *window) take(offset int64, c *change) {
	w.next = offset + 1
	if c != nil {
		w.changes.push(c)
	}
}

// mark returns the watermark: every record below it is finished. The proof: records are taken in order, every record that
// owes deletes is in changes from before its first delete is issued until finished is true of it, and only a finished
// prefix is dropped. So what lies below the first change that is left is finished; and where none is left, everything that
// was taken.
func (w *window) mark() int64 {
	for w.changes.len() > 0 {
		if c := w.changes.front(); !c.finished {
			return c.offset
		}
		w.changes.pop()
		w.fresh = max(0, w.fresh-1)
	}
	return w.next
}

// oldest is the age of the first change that is not fresh; 0: there is none.
func (w *window) oldest() age {
	for ; w.fresh < w.changes.len(); w.fresh++ {
		if c := w.changes.items[w.changes.head+w.fresh]; !c.fresh {
			return c.age
		}
	}
	return 0
}

// inFlight is how many changes are held.
func (w *window) inFlight() int { return w.changes.len() }
