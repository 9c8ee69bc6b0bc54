package pipeline

// window holds a partition's changes in flight in the order of their offsets, and knows how far everything is finished.
type window struct {
	changes []*change // [head:] are in flight or finished out of order
	head    int
	next    int64 // one past the last record taken
}

// take notes that the record at offset was taken; c is nil where it owes nothing.
func (w *window) take(offset int64, c *change) {
	w.next = offset + 1
	if c != nil {
		w.changes = append(w.changes, c)
	}
}

// mark returns the watermark: every record below it is finished. The proof: records are taken in order, every record that
// owes deletes is in changes from before its first delete is issued until finished() is true of it, and only a finished
// prefix is dropped. So what lies below the first change that is left is finished; and where none is left, everything that
// was taken.
func (w *window) mark() int64 {
	for w.head < len(w.changes) && w.changes[w.head].finished {
		w.changes[w.head] = nil
		w.head++
	}
	if w.head == len(w.changes) {
		w.changes, w.head = w.changes[:0], 0
		return w.next
	}
	if w.head > 1024 && w.head > len(w.changes)/2 { // give the room of the finished prefix back
		n := copy(w.changes, w.changes[w.head:])
		clear(w.changes[n:])
		w.changes, w.head = w.changes[:n], 0
	}
	return w.changes[w.head].offset
}

// inFlight is how many changes are held.
func (w *window) inFlight() int { return len(w.changes) - w.head }
