package mysql

import (
	"context"
	"maps"
	"slices"
	"strings"

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
		list = slices.DeleteFunc(slices.Clone(list), func(l cdc.Layout) bool { return l.From.ServerUUID != srv.id })
		if len(list) > 0 && srv.included(id) {
			h.of[id] = list
		}
	}
	return h
}

// until counts the layouts of a table that begin at or before a place.
func (h *history) until(id cdc.TableID, at cdc.Position) int {
	n := 0
	for n < len(h.of[id]) && h.server.reaches(at, h.of[id][n].From) {
		n++
	}
	return n
}

// at is a table's schema at a place; nil where it is not known.
func (h *history) at(id cdc.TableID, at cdc.Position) *tableSchema {
	n := h.until(id, at)
	if n == 0 {
		return nil
	}
	return schemaOfLayout(h.of[id][n-1])
}

// since is the schema that a table got exactly at a place; nil where none is known.
func (h *history) since(id cdc.TableID, at cdc.Position) *tableSchema {
	n := h.until(id, at)
	if n == 0 || !h.server.reaches(h.of[id][n-1].From, at) {
		return nil
	}
	return schemaOfLayout(h.of[id][n-1])
}

// set notes a table's schema from a place on; nil: it is not known. What is known of later places stays.
func (h *history) set(id cdc.TableID, from cdc.Position, s *tableSchema) {
	if h.keep == nil {
		return
	}
	list, n := h.of[id], h.until(id, from)
	was := h.at(id, from)
	switch {
	case s == nil && was == nil, s.equal(was):
		return
	case n > 0 && h.server.reaches(list[n-1].From, from):
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
		if n := h.until(id, at); n > 0 {
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
	return slices.SortedFunc(maps.Keys(h.of), func(a, b cdc.TableID) int { return strings.Compare(a.String(), b.String()) })
}

// outset is a place before all others, of the server's log.
func (s *server) outset() cdc.Position { return cdc.Position{ServerUUID: s.id} }

// reaches reports whether a place lies at or behind another one, of the same server's log. Where that cannot be told it does not.
func (s *server) reaches(at, from cdc.Position) bool {
	if at.ServerUUID != from.ServerUUID {
		return false
	}
	if from == s.outset() {
		return true
	}
	a, err := parsePosition(s, at)
	if err != nil {
		return false
	}
	b, err := parsePosition(s, from)
	if err != nil {
		return false
	}
	if a.executed != nil || b.executed != nil {
		return a.executed != nil && b.executed != nil && a.executed.Contain(b.executed)
	}
	for domain, g := range b.domains {
		if a.domains[domain].SequenceNumber < g.SequenceNumber {
			return false
		}
	}
	return place{b.file, b.pos}.compare(place{a.file, a.pos}) <= 0
}
