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

func TestReaches(t *testing.T) {
	mine := &server{id: "s", gtid: true}
	maria := &server{id: "s", gtid: true, maria: true}
	files := &server{id: "s"}
	at := func(set, file string, pos uint64) cdc.Position {
		return cdc.Position{ServerUUID: "s", GTIDSet: set, File: file, Pos: pos}
	}
	other := at(sid+"1-9", "b.1", 9)
	other.ServerUUID = "t"
	for name, x := range map[string]struct {
		server   *server
		at, from cdc.Position
		want     bool
	}{
		"the same":                  {mine, at(sid+"1-5", "b.1", 5), at(sid+"1-5", "b.1", 5), true},
		"behind":                    {mine, at(sid+"1-6", "b.1", 6), at(sid+"1-5", "b.1", 5), true},
		"before":                    {mine, at(sid+"1-5", "b.1", 5), at(sid+"1-6", "b.1", 6), false},
		"a hole":                    {mine, at(sid+"1-2:4-9", "b.1", 9), at(sid+"1-3", "b.1", 3), false},
		"an empty log":              {mine, at(sid+"1-5", "b.1", 5), at("", "", 0), true},
		"before anything":           {mine, at("", "", 0), at(sid+"1-5", "b.1", 5), false},
		"of another server":         {mine, at(sid+"1-9", "b.1", 9), other, false},
		"of files":                  {mine, at(sid+"1-9", "b.1", 9), at("", "b.1", 5), false},
		"no set":                    {mine, at(sid+"1-9", "b.1", 9), at("?", "b.1", 5), false},
		"Maria: behind":             {maria, at("0-1-6,7-1-1", "b.1", 6), at("0-1-5,7-1-1", "b.1", 5), true},
		"Maria: a domain before":    {maria, at("0-1-6,7-1-1", "b.1", 6), at("0-1-5,7-1-2", "b.1", 5), false},
		"Maria: a domain more":      {maria, at("0-1-6", "b.1", 6), at("0-1-5,7-1-1", "b.1", 5), false},
		"Maria: an offset before":   {maria, at("0-1-6", "b.1", 4), at("0-1-5", "b.1", 5), false},
		"Maria: a file behind":      {maria, at("0-1-6", "b.10", 4), at("0-1-5", "b.9", 5), true},
		"files: behind":             {files, at("", "b.10", 4), at("", "b.9", 5), true},
		"files: before":             {files, at("", "b.9", 4), at("", "b.9", 5), false},
		"files: the outset":         {files, at("", "b.1", 4), at("", "", 0), true},
		"Maria: the outset":         {maria, at("0-1-6", "b.1", 4), at("", "", 0), true},
		"files: a set":              {files, at(sid+"1-5", "b.9", 4), at("", "b.9", 4), false},
		"a position that is no SQL": {mine, cdc.Position{ServerUUID: "s", LSN: "0/1"}, at(sid+"1-5", "b.1", 5), false},
	} {
		if got := x.server.reaches(x.at, x.from); got != x.want {
			t.Errorf("%s: %v", name, got)
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
	f := &Feeder{remembered: map[cdc.TableID][]cdc.Layout{{Schema: "a", Table: "u"}: from("s"), {Schema: "a", Table: "v"}: from("t"), {Schema: "b", Table: "u"}: from("s")}}
	h := newHistory(f, srv, cdc.Position{ServerUUID: "s", File: "b.1", Pos: 9})
	if got := h.tables(); !slices.Equal(got, []cdc.TableID{{Schema: "a", Table: "u"}}) {
		t.Errorf("%v count", got)
	}
	if got := newHistory(f, srv, cdc.Position{}).tables(); len(got) != 0 {
		t.Errorf("%v count where a source begins anew", got)
	}
}
