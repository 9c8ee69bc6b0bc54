package feed

import (
	"time"

	"invalidator/cdc"
)

const (
	// window bounds how far the records of a source may run ahead of the oldest that is not acknowledged, when one
	// partition stands still and the others go on: 32 KiB of bits, and a second or two of a source at full speed.
	window = 1 << 18

	// maxMarks bounds the positions that wait for acknowledgements; a position may hold a GTID set of some hundred bytes.
	// Beyond it the newest mark moves instead, which only makes steps larger.
	maxMarks = 1024
)

// mark is a position and the records that lie before it: all with a lower number.
type mark struct {
	below uint64
	pos   cdc.Position
	at    time.Time // when the transaction was committed; zero where unknown
}

// tracker finds the position up to which everything is acknowledged. Records are numbered in the order in which they are
// sent. It is a plain value without locks, clocks or channels.
type tracker struct {
	first, next uint64 // the lowest number not acknowledged; the number of the next record
	acked       [window / 64]uint64
	marks       [maxMarks]mark // a ring: marked of them from oldest on
	oldest      int
	marked      int
	safe        mark
	anySafe     bool
}

// full reports whether a record would run too far ahead. send must not be called then.
func (t *tracker) full() bool { return t.next-t.first == window }

// idle reports whether every record is acknowledged.
func (t *tracker) idle() bool { return t.next == t.first }

// send numbers a record.
func (t *tracker) send() uint64 {
	t.next++
	return t.next - 1
}

// commit says that p lies behind every record sent so far, and before every later one.
func (t *tracker) commit(p cdc.Position, at time.Time) {
	m := mark{t.next, p, at}
	switch {
	case t.marked == 0 && t.idle():
		t.safe, t.anySafe = m, true
		return
	case t.marked > 0 && (t.marked == maxMarks || t.newest().below == m.below):
		*t.newest() = m
		return
	}
	t.marked++
	*t.newest() = m
}

func (t *tracker) newest() *mark { return &t.marks[(t.oldest+t.marked-1)%maxMarks] }

// ack takes an acknowledgement, in any order, and reports whether the safe position moved.
//
// Why safe never passes a record that is not acknowledged: first rises only over numbers whose bit is set, one by one. A
// bit is set by that number's acknowledgement alone, since two numbers that share a bit are window apart and never both in
// [first, next), which full keeps no longer than window; and first clears it as it passes, before next can come round to
// it. So every number below first is acknowledged, and first never passes next. A mark becomes
// safe only when its below <= first, and below is, by commit, the number of the first record after its position; so every
// record before the position is acknowledged. Moving the newest mark to a later position raises its below with it. A mark
// is taken from the ring in the order in which it came, so safe never goes back.
func (t *tracker) ack(n uint64) bool {
	if n < t.first {
		return false
	}
	t.acked[n%window/64] |= 1 << (n % 64)
	for t.acked[t.first%window/64]&(1<<(t.first%64)) != 0 {
		t.acked[t.first%window/64] &^= 1 << (t.first % 64)
		t.first++
	}
	moved := false
	for t.marked > 0 && t.marks[t.oldest].below <= t.first {
		t.safe, t.anySafe, moved = t.marks[t.oldest], true, true
		t.marks[t.oldest] = mark{}
		t.oldest = (t.oldest + 1) % maxMarks
		t.marked--
	}
	return moved
}
