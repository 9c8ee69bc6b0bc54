package memcache

import (
	"bytes"
	"context"
	"strconv"
	"time"
	"unsafe"

	"invalidator/sink"
)

// DeleteIf is Delete in lane sink.Flush, or MarkStale where staleFor is within its bounds, of a copy that still has that CAS value:
// w is told a *sink.ChangedError where it has another, and stays. What cannot compare deletes: a CAS of 0, the classic protocol, and
// a node or proxy that answered it, alone, with an error. A batch that is sent again may find what it marked itself changed.
func (c *Client) DeleteIf(ctx context.Context, cp sink.Copy, cas uint64, staleFor time.Duration, w sink.Waiter) error {
	e := newEntry(sink.Flush, cp.Key, staleSeconds(staleFor), w)
	if cas != 0 {
		e.waiter, e.compares = &comparison{waiter: w, cas: cas}, true
	}
	return c.queue(ctx, cp.Node, e)
}

// comparison is the waiter of an entry that compares, so that all others are no larger for it. No other entry goes as such a one, nor it as another.
type comparison struct {
	waiter  sink.Waiter
	cas     uint64 // 0: it compares no longer
	changed bool   // the node has another: written by the exchange, read when its waiter is told
}

const comparisonSize = int(unsafe.Sizeof(comparison{}))

// Acked implements sink.Waiter.
func (m *comparison) Acked(c sink.Copy, err error) {
	if err == nil && m.changed {
		err = &sink.ChangedError{Copy: c}
	}
	m.waiter.Acked(c, err)
}

// comparison is called of an entry that compares.
func (e *entry) comparison() *comparison { return e.waiter.(*comparison) }

// comparing says whether e compares still.
func (e *entry) comparing() bool { return e.compares && e.comparison().cas != 0 }

// plain leaves a delete of e: without a mark, and whatever the item's CAS value is.
func (e *entry) plain() {
	e.stale = 0
	if e.compares {
		e.comparison().cas = 0
	}
}

// again has e sent once more. What an exchange that failed said of it does not count.
func (e *entry) again() {
	e.careful = true
	if e.compares {
		e.comparison().changed = false
	}
}

// appendComparison is the part of a command that compares. A quiet one is numbered, since its answer is not in order.
func (e *entry) appendComparison(out []byte, number int, careful bool) []byte {
	out = append(out, " C"...)
	out = strconv.AppendUint(out, e.comparison().cas, 10)
	if !careful {
		out = append(out, " O"...)
		out = strconv.AppendUint(out, uint64(number), 10)
	}
	return out
}

// compared says whether the line answers an entry that compares: the next one, or in a quiet batch the one whose number it shows.
func compared(line []byte, batch []entry, next int, careful bool) bool {
	if !careful {
		code, number, _ := bytes.Cut(line, []byte(" O"))
		n, err := strconv.ParseUint(string(number), 10, 31)
		if err != nil {
			return false
		}
		line, next = code, int(n)
	}
	if next >= len(batch) || !batch[next].comparing() {
		return false
	}
	if string(line) == "EX" {
		batch[next].comparison().changed = true
		return true
	}
	return isDone(line)
}
