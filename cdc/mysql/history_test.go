package mysql

import (
	"context"
	"slices"
	"testing"

	"invalidator/cdc"
)

// discard is a History that keeps nothing.
type discard struct{ cdc.History }

func (discard) Replace(context.Context, map[cdc.TableID][]cdc.Layout) error { return nil }

const sid = "3e11fa47-0000-0000-0000-000000000001:"

// Where two places lie cannot always be told, and then no layout is taken for the last one.
func TestOrderOfPlaces(t *testing.T) {
	mine := &server{id: "s", gtid: true}
	maria := &server{id: "s", gtid: true, maria: true}
	files := &server{id: "s"}
	at := func(set, file string, pos uint64) cdc.Position {
		return cdc.Position{ServerUUID: "s", GTIDSet: set, File: file, Pos: pos}
	}
	other := at(sid+"1-9", "b.1", 9)
	other.ServerUUID = "t"
	const unclear = 9
	for name, x := range map[string]struct {
		server *server
		a, b   cdc.Position
		want   int
	}{
		"the same":            {mine, at(sid+"1-5", "b.1", 5), at(sid+"1-5", "b.1", 5), 0},
		"behind":              {mine, at(sid+"1-6", "b.1", 6), at(sid+"1-5", "b.1", 5), 1},
		"a file begun anew":   {mine, at(sid+"1-6", "b.1", 6), at(sid+"1-5", "b.7", 5), 1},
		"a hole":              {mine, at(sid+"1-2:4-9", "b.1", 9), at(sid+"1-3", "b.1", 3), unclear},
		"a hole, before":      {mine, at(sid+"1-2:4", "b.1", 9), at(sid+"1-2:4-5", "b.1", 3), -1},
		"the outset":          {mine, at(sid+"1-5", "b.1", 5), at("", "", 0), 1},
		"of another server":   {mine, at(sid+"1-9", "b.1", 9), other, unclear},
		"of files":            {mine, at(sid+"1-9", "b.1", 9), at("", "b.1", 5), unclear},
		"no set":              {mine, at(sid+"1-9", "b.1", 9), at("?", "b.1", 5), unclear},
		"no SQL":              {mine, cdc.Position{ServerUUID: "s", LSN: "0/1"}, at(sid+"1-5", "b.1", 5), unclear},
		"Maria: behind":       {maria, at("0-1-6,7-1-1", "b.1", 6), at("0-1-5,7-1-1", "b.1", 5), 1},
		"Maria: a new domain": {maria, at("0-1-6,7-1-1", "b.1", 6), at("0-1-5", "b.1", 5), 1},
		"Maria: a file":       {maria, at("0-1-6", "b.10", 4), at("0-1-5", "b.9", 5), 1},
		"Maria: within":       {maria, at("0-1-6", "b.1", 4), at("0-1-6", "b.1", 9), 0},
		"Maria: apart":        {maria, at("0-1-6,7-1-1", "b.1", 6), at("0-1-5,7-1-2", "b.1", 5), unclear},
		"Maria: over 4 GiB":   {maria, at("0-1-6", "b.1", 4), at("0-1-5", "b.1", 4_000_000_000), unclear},
		"Maria: the outset":   {maria, at("0-1-6", "b.1", 4), at("", "", 0), 1},
		"files: behind":       {files, at("", "b.10", 4), at("", "b.9", 5), 1},
		"files: the outset":   {files, at("", "b.1", 4), at("", "", 0), 1},
		"files: a set":        {files, at(sid+"1-5", "b.9", 4), at("", "b.9", 4), unclear},
	} {
		for _, turned := range []bool{false, true} {
			a, b, want := x.a, x.b, x.want
			if turned {
				if a, b = b, a; want != unclear {
					want = -want
				}
			}
			if c, ok := x.server.order(a, b); ok != (want != unclear) || ok && c != want {
				t.Errorf("%s (turned: %v): %d, %v; want %d", name, turned, c, ok, want)
			}
		}
	}
}

// The last layout at or before a place holds there, and none holds behind one that is not known.
func TestHistoryByPlace(t *testing.T) {
	srv := &server{id: "s"}
	h := &history{server: srv, keep: discard{}, of: map[cdc.TableID][]cdc.Layout{}, changed: map[cdc.TableID]bool{}}
	at := func(pos uint64) cdc.Position { return cdc.Position{ServerUUID: "s", File: "b.1", Pos: pos} }
	id := cdc.TableID{Schema: "a", Table: "u"}
	of := func(names ...string) *tableSchema {
		s := &tableSchema{key: names[:1]}
		for _, n := range names {
			s.columns = append(s.columns, schemaColumn{name: n, dataType: "int", columnType: "int unsigned", octets: -1})
		}
		return s
	}
	expect := func(what string, want map[uint64]*tableSchema, since ...uint64) {
		t.Helper()
		for pos, s := range want {
			if got := h.at(id, at(pos)); (got != nil || s != nil) && !got.equal(s) {
				t.Errorf("%s: at %d it is %v, want %v", what, pos, got, s)
			}
		}
		for pos := range uint64(40) {
			if got := h.since(id, at(pos)); (got != nil) != slices.Contains(since, pos) {
				t.Errorf("%s: since %d: %v", what, pos, got)
			}
		}
	}
	a, b, c := of("x"), of("x", "y"), of("y", "x")
	h.set(id, at(5), nil) // nothing is known: nothing ends
	h.set(id, at(10), a)
	h.set(id, at(12), a) // it is so already
	h.set(id, at(30), c)
	h.set(id, at(20), nil)
	expect("three", map[uint64]*tableSchema{9: nil, 10: a, 19: a, 20: nil, 29: nil, 30: c, 99: c}, 10, 30)
	if n := len(h.of[id]); n != 3 {
		t.Errorf("%d layouts", n)
	}
	h.set(id, at(20), b) // it is known after all
	expect("known", map[uint64]*tableSchema{19: a, 20: b, 29: b, 30: c}, 10, 20, 30)

	if err := h.begin(t.Context(), at(25)); err != nil {
		t.Fatal(err)
	}
	if from := h.of[id][0].From; from != (cdc.Position{ServerUUID: "s"}) {
		t.Errorf("what holds where it began has the place %+v", from)
	}
	expect("begun at 25", map[uint64]*tableSchema{25: b, 29: b, 30: c}, 30)
	h.set(id, at(35), nil)
	if err := h.begin(t.Context(), at(36)); err != nil || len(h.of) != 0 {
		t.Errorf("%v, %v", h.of, err)
	}
	for i := range uint64(3 * maxKept) {
		h.set(id, at(100+i), []*tableSchema{a, b}[i%2])
	}
	if len(h.of[id]) != maxKept || h.at(id, at(100)) != nil || !h.at(id, at(999)).equal(b) {
		t.Errorf("%d layouts", len(h.of[id]))
	}
}

// A layout whose place cannot be compared with the one that is read makes all of its table unknown: the one before it may not hold.
func TestHistoryThatIsNotClear(t *testing.T) {
	srv := &server{id: "s", gtid: true, maria: true}
	at := func(set string, pos uint64) cdc.Position {
		return cdc.Position{ServerUUID: "s", GTIDSet: set, File: "b.1", Pos: pos}
	}
	id, columns := cdc.TableID{Schema: "a", Table: "u"}, []cdc.LayoutColumn{{Name: "x"}}
	fresh := func() *history {
		return &history{server: srv, keep: discard{}, changed: map[cdc.TableID]bool{}, of: map[cdc.TableID][]cdc.Layout{
			id: {{From: srv.outset(), Columns: columns}, {From: at("0-1-5", 4_000_000_000), Columns: append(columns, columns...)}}}}
	}
	h := fresh()
	if h.at(id, at("0-1-4", 100)) == nil || h.at(id, at("0-1-6", 4_100_000_000)) == nil {
		t.Error("what is clear is not known")
	}
	if h.at(id, at("0-1-6", 100)) != nil || h.since(id, at("0-1-6", 100)) != nil {
		t.Error("a layout is known behind a file's four GiB")
	}
	h.set(id, at("0-1-7", 200), nil)
	if list := h.of[id]; len(list) != 1 || list[0].Columns != nil {
		t.Errorf("left are %v", list)
	}
	h = fresh()
	if err := h.begin(t.Context(), at("0-1-6", 100)); err != nil || len(h.of) != 0 {
		t.Errorf("%v; left are %v", err, h.of)
	}
}

// What is kept is of one server, of what is included, and of one beginning.
func TestHistoryThatDoesNotCount(t *testing.T) {
	inc, err := cdc.NewInclude([]string{"a.*"})
	if err != nil {
		t.Fatal(err)
	}
	srv := &server{id: "s", include: inc}
	from := func(server string) []cdc.Layout {
		return []cdc.Layout{{From: cdc.Position{ServerUUID: server, File: "b.1", Pos: 4}, Columns: []cdc.LayoutColumn{{Name: "x"}}}}
	}
	f := &Feeder{remembered: map[cdc.TableID][]cdc.Layout{{Schema: "a", Table: "u"}: from("s"), {Schema: "a", Table: "v"}: slices.Concat(from("s"), from("t")), {Schema: "b", Table: "u"}: from("s")}}
	h := newHistory(f, srv, cdc.Position{ServerUUID: "s", File: "b.1", Pos: 9})
	if got := h.tables(); !slices.Equal(got, []cdc.TableID{{Schema: "a", Table: "u"}}) {
		t.Errorf("%v count", got)
	}
	if got := newHistory(f, srv, cdc.Position{}).tables(); len(got) != 0 {
		t.Errorf("%v count where a source begins anew", got)
	}
}
