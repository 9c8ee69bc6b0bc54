package mysql

import (
	"context"
	"maps"
	"slices"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// history is what is known of layouts beyond the life of a Run, as cdc.History keeps it. Each table has its layouts in the order of
// the log, and the last one at or before a place holds there: it was written down before the position that follows it was told, and
// so was each change behind it. So what was logged before a change that nobody has followed yet is read by the layout that was written down
// before it. Behind a change whose layout nobody saw there is one without columns, which ends what holds.
//
// It is of one server. Its replicas have the same statements in their logs, but a layout that was changed there alone
// (sql_log_bin=0, one replica after the other) is in no log.
type history struct {
	server  *server
	keep    cdc.History // nil: nobody keeps it
	of      map[cdc.TableID][]cdc.Layout
	changed map[cdc.TableID]bool // since the last flush
}

// maxKept bounds the layouts that are kept of a table: those of a place that is further back than so many changes are read as if
// nobody knew.
const maxKept = 16

// newHistory takes what was kept for the position that is begun at. A source that begins anew has none.
func newHistory(f *Feeder, srv *server, from cdc.Position) *history {
	h := &history{server: srv, keep: f.history, of: map[cdc.TableID][]cdc.Layout{}, changed: map[cdc.TableID]bool{}}
	if from.IsZero() {
		return h
	}
	for id, list := range f.remembered {
		other := slices.ContainsFunc(list, func(l cdc.Layout) bool { return l.From.ServerUUID != srv.id })
		if len(list) > 0 && !other && srv.included(id) {
			h.of[id] = list
		}
	}
	return h
}

// until counts the layouts of a table that begin at or before a place. ok is false where that is not clear for one of them: an older
// one must not be taken for the last.
func (h *history) until(id cdc.TableID, at cdc.Position) (n int, ok bool) {
	for i, l := range h.of[id] {
		c, ok := h.server.order(at, l.From)
		if !ok || c >= 0 && n < i {
			return 0, false
		}
		if c >= 0 {
			n++
		}
	}
	return n, true
}

// at is a table's schema at a place; nil where it is not known.
func (h *history) at(id cdc.TableID, at cdc.Position) *tableSchema {
	if n, ok := h.until(id, at); ok && n > 0 {
		return schemaOfLayout(h.of[id][n-1])
	}
	return nil
}

// since is the schema that a table got exactly at a place; nil where none is known.
func (h *history) since(id cdc.TableID, at cdc.Position) *tableSchema {
	n, ok := h.until(id, at)
	if !ok || n == 0 || !h.server.same(h.of[id][n-1].From, at) {
		return nil
	}
	return schemaOfLayout(h.of[id][n-1])
}

// set notes a table's schema from a place on; nil: it is not known. What is known of later places stays.
func (h *history) set(id cdc.TableID, from cdc.Position, s *tableSchema) {
	if h.keep == nil {
		return
	}
	list, was := h.of[id], h.at(id, from)
	n, ok := h.until(id, from)
	switch {
	case !ok: // nothing of it can be used
		list = []cdc.Layout{layoutOf(from, s)}
	case s == nil && was == nil, s.equal(was):
		return
	case n > 0 && h.server.same(list[n-1].From, from):
		list = slices.Clone(list)
		list[n-1] = layoutOf(from, s)
	default:
		list = slices.Insert(slices.Clone(list), n, layoutOf(from, s))
	}
	h.of[id] = list[max(0, len(list)-maxKept):]
	h.changed[id] = true
}

// flush makes what was set durable.
func (h *history) flush(ctx context.Context) error {
	if len(h.changed) == 0 {
		return nil
	}
	some := map[cdc.TableID][]cdc.Layout{}
	for id := range h.changed {
		some[id] = h.of[id]
	}
	if err := h.keep.Put(ctx, some); err != nil {
		return err
	}
	clear(h.changed)
	return nil
}

// begin makes what is known at the start of a Run all that is kept: without layouts that ended before, and tables of which nothing
// is known. What is kept now counts with no position before this one, so that what holds here needs no place, which may be a long set of
// GTIDs, one a table.
func (h *history) begin(ctx context.Context, at cdc.Position) error {
	if h.keep == nil {
		return nil
	}
	for id, list := range h.of {
		switch n, ok := h.until(id, at); {
		case !ok:
			list = nil
		case n > 0:
			list = slices.Clone(list[n-1:])
			list[0].From = h.server.outset()
		}
		for len(list) > 0 && len(list[0].Columns) == 0 {
			list = list[1:]
		}
		if h.of[id] = list; len(list) == 0 {
			delete(h.of, id)
		}
	}
	clear(h.changed)
	return h.keep.Replace(ctx, maps.Clone(h.of))
}

// tables lists those of which anything is kept.
func (h *history) tables() []cdc.TableID {
	return slices.SortedFunc(maps.Keys(h.of), byName)
}

// outset is a place before all others, of the server's log.
func (s *server) outset() cdc.Position { return cdc.Position{ServerUUID: s.id} }

// order compares two places of the server's log: negative where a lies before b. ok is false where it cannot be told for sure.
func (s *server) order(a, b cdc.Position) (c int, ok bool) {
	switch {
	case a.ServerUUID != s.id || b.ServerUUID != s.id:
		return 0, false
	case a == b:
		return 0, true
	case b == s.outset():
		return 1, true
	case a == s.outset():
		return -1, true
	}
	x, err := parsePosition(s, a)
	if err != nil {
		return 0, false
	}
	y, err := parsePosition(s, b)
	if err != nil {
		return 0, false
	}
	inFiles := place{x.file, x.pos}.compare(place{y.file, y.pos})
	switch {
	case x.executed != nil && y.executed != nil:
		return orderOf(y.executed.Contain(x.executed), x.executed.Contain(y.executed))
	case x.executed != nil || y.executed != nil:
		return 0, false
	case x.domains == nil:
		return inFiles, true
	}
	// A place in a transaction and its end have one set of GTIDs, and are one here. Else both must say the same: GTIDs of a domain may be
	// out of order, and offsets begin again in a file over 4 GiB, and on a server that takes the place of one with its number.
	c, ok = orderOf(domainsIn(x.domains, y.domains), domainsIn(y.domains, x.domains))
	return c, ok && (c == 0 || c == inFiles)
}

func (s *server) same(a, b cdc.Position) bool {
	c, ok := s.order(a, b)
	return ok && c == 0
}

// orderOf compares sets: a in b, and b in a.
func orderOf(aInB, bInA bool) (int, bool) {
	switch {
	case aInB && bInA:
		return 0, true
	case aInB:
		return -1, true
	}
	return 1, bInA
}

// domainsIn reports whether no domain of a is farther than in b.
func domainsIn(a, b map[uint32]mysql.MariadbGTID) bool {
	for domain, g := range a {
		if b[domain].SequenceNumber < g.SequenceNumber {
			return false
		}
	}
	return true
}
