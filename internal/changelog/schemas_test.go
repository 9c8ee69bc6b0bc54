package changelog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

var (
	usersTable  = cdc.TableID{Schema: "shop", Table: "users"}
	dottedTable = cdc.TableID{Schema: "a.b", Table: "c/d"}
)

// layoutAt is a table with columns from a place on; none: it is not known.
func layoutAt(pos uint64, columns ...string) cdc.Layout {
	l := cdc.Layout{From: cdc.Position{ServerUUID: "s", File: "binlog.000001", Pos: pos}}
	for _, name := range columns {
		l.Columns = append(l.Columns, cdc.LayoutColumn{Name: name, Type: "int", Full: "int unsigned", Octets: -1, Precision: 10})
		l.Key = []string{name}
	}
	return l
}

type layouts = map[cdc.TableID][]cdc.Layout

// schemasOf are those that the leader of a generation finds where a leader of another saved a position; 0: none was saved.
func schemasOf(t *testing.T, s *changelog.StateStore, saved, generation int64) *changelog.Schemas {
	t.Helper()
	h, err := s.Schemas(load(t, s), "shop", changelog.SavedPosition{Found: saved > 0, Generation: saved}, generation)
	must(t, err)
	return h
}

func TestLayoutsBelongToThePositionsOfTheirGeneration(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	first := layouts{usersTable: {layoutAt(4, "id"), layoutAt(9, "n", "id")}, dottedTable: {layoutAt(5, "x"), layoutAt(7)}}
	h := schemasOf(t, s, 0, 10)
	must(t, h.Replace(t.Context(), first))
	for _, x := range []struct {
		saved, generation int64
		want              layouts
		stale             int
	}{
		{10, 20, first, 2},     // the next leader
		{10, 10, first, 0},     // the same one again
		{0, 20, layouts{}, 2},  // a source that begins anew
		{15, 20, layouts{}, 2}, // a position that was saved by whoever keeps none
	} {
		h := schemasOf(t, s, x.saved, x.generation)
		if d := cmp.Diff(x.want, h.Known); d != "" || len(h.Stale) != x.stale {
			t.Errorf("position of %d, leader %d: %d stale\n%s", x.saved, x.generation, len(h.Stale), d)
		}
	}

	// A leader that began, and died before it saved a position, does not count; nor does what it wrote for who comes later.
	dead := schemasOf(t, s, 10, 20)
	must(t, dead.Replace(t.Context(), layouts{usersTable: {layoutAt(4, "id")}}))
	if d := cmp.Diff(first, schemasOf(t, s, 10, 30).Known); d != "" {
		t.Error(d)
	}
	third := schemasOf(t, s, 10, 30)
	must(t, third.Replace(t.Context(), third.Known))
	must(t, s.Remove(t.Context(), third.Stale...))
	must(t, dead.Put(t.Context(), layouts{usersTable: {layoutAt(99, "wrong")}})) // it wakes
	fourth := schemasOf(t, s, 30, 40)
	if d := cmp.Diff(first, fourth.Known); d != "" || len(fourth.Stale) != 3 {
		t.Errorf("stale %q\n%s", fourth.Stale, d)
	}
}

func TestReplacedLayoutsAreAllThatAreKept(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	h := schemasOf(t, s, 0, 10)
	must(t, h.Replace(t.Context(), layouts{usersTable: {layoutAt(4, "id")}, dottedTable: {layoutAt(4, "id")}}))
	must(t, h.Put(t.Context(), layouts{usersTable: {layoutAt(4, "id"), layoutAt(9)}}))

	// A later run of the same leader knows what stands there, and writes what differs alone.
	again := schemasOf(t, s, 10, 10)
	before := len(c.Records(t, c.Names.State))
	must(t, again.Replace(t.Context(), again.Known))
	if n := len(c.Records(t, c.Names.State)); n != before {
		t.Errorf("%d records were written again", n-before)
	}
	must(t, again.Replace(t.Context(), layouts{dottedTable: {layoutAt(5, "id")}}))
	if d := cmp.Diff(layouts{dottedTable: {layoutAt(5, "id")}}, schemasOf(t, s, 10, 10).Known); d != "" {
		t.Error(d)
	}
	must(t, again.Replace(t.Context(), nil))
	if known := schemasOf(t, s, 10, 10).Known; len(known) > 0 {
		t.Errorf("kept %v", known)
	}
}

// A record that counts and cannot be read is never taken for none; one of another generation is nobody's business.
func TestLayoutsThatCannotBeRead(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	for name, x := range map[string]struct{ key, value, says string }{
		"newer": {"schema/shop/shop/users/10", `{"v":2,"source":"shop"}`, "unknown format version 2"},
		"field": {"schema/shop/shop/users/10", `{"v":1,"source":"shop","schema":"shop","table":"users","generation":10,"layouts":[],"more":1}`, "more"},
		"other": {"schema/shop/shop/users/10", `{"v":1,"source":"shop","schema":"shop","table":"orders","generation":10,"layouts":[]}`, "shop.orders"},
		"torn":  {"schema/shop/shop/users/10", `{"v":1,`, "unexpected end"},
	} {
		must(t, s.Put(t.Context(), x.key, []byte(x.value)))
		_, err := s.Schemas(load(t, s), "shop", changelog.SavedPosition{Found: true, Generation: 10}, 20)
		var re *changelog.RecordError
		if !errors.As(err, &re) || re.Retryable() || !strings.Contains(err.Error(), x.key) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", name, err)
		}
		schemasOf(t, s, 15, 20)
	}
}

// What no record takes is left out, the oldest first, and a layout that is too large itself is one that is not known.
func TestLayoutsThatAreTooLarge(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	wide := func(pos uint64, bytes int) cdc.Layout {
		l := layoutAt(pos, "id")
		l.Columns[0].Full = strings.Repeat("x", bytes)
		return l
	}
	h := schemasOf(t, s, 0, 10)
	must(t, h.Replace(t.Context(), layouts{usersTable: {wide(1, 500<<10), wide(2, 500<<10)}, dottedTable: {layoutAt(1, "id"), wide(2, 2<<20)}}))
	want := layouts{usersTable: {wide(2, 500<<10)}, dottedTable: {layoutAt(2)}}
	if d := cmp.Diff(want, schemasOf(t, s, 10, 10).Known); d != "" {
		t.Error(d)
	}
}
