package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"invalidator/cdc"
)

// message builds a pgoutput message.
type message []byte

func msg(kind byte) message { return message{kind} }

func (m message) u8(v byte) message     { return append(m, v) }
func (m message) u16(v uint16) message  { return binary.BigEndian.AppendUint16(m, v) }
func (m message) u32(v uint32) message  { return binary.BigEndian.AppendUint32(m, v) }
func (m message) u64(v uint64) message  { return binary.BigEndian.AppendUint64(m, v) }
func (m message) name(s string) message { return append(append(m, s...), 0) }
func (m message) text(s string) message { return append(m.u32(uint32(len(s))), s...) }

// tuple adds a tuple; a column is "t" and its text, or "n", "u", or "b" and bytes.
func (m message) tuple(kind byte, columns ...string) message {
	m = m.u8(kind).u16(uint16(len(columns)))
	for _, c := range columns {
		m = m.u8(c[0])
		if c[0] == 't' || c[0] == 'b' {
			m = m.text(c[1:])
		}
	}
	return m
}

const microsecondsAfter2000 = 850_000_000_123_456

var committedAt = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(microsecondsAfter2000 * time.Microsecond)

func begin() message { return msg('B').u64(0x100000010).u64(microsecondsAfter2000).u32(4294967295) }
func commit(end uint64) message {
	return msg('C').u8(0).u64(0x100000010).u64(end).u64(microsecondsAfter2000)
}

// users is a table with a key, a bytea and a text column.
func users() message {
	return msg('R').u32(7).name("public").name("users").u8('d').u16(3).
		u8(1).name("id").u32(pgtype.Int8OID).u32(0xffffffff).
		u8(0).name("raw").u32(pgtype.ByteaOID).u32(0xffffffff).
		u8(0).name("name").u32(999999).u32(0xffffffff)
}

// told writes down what a Handler is told, a line a call.
type told struct {
	lines   []string
	changes []*cdc.RowChange
	refuse  error // of Joined
}

func (*told) Lost(context.Context, cdc.Loss) error { return nil }
func (h *told) Joined(_ context.Context, tables []cdc.TableID, p cdc.Position) error {
	h.lines = append(h.lines, fmt.Sprintf("joined %v at %s", tables, p.LSN))
	return h.refuse
}

func (h *told) Started(context.Context, cdc.Position) error { return nil }

func (h *told) Change(_ context.Context, c *cdc.RowChange) error {
	h.changes = append(h.changes, c.Clone())
	s := fmt.Sprintf("%s %s.%s #%d", c.Op, c.Schema, c.Table, c.Ordinal)
	for _, row := range []cdc.Row{c.Before, c.After} {
		s += " " + showRow(row)
	}
	h.lines = append(h.lines, s)
	return nil
}

func (h *told) Committed(_ context.Context, p cdc.Position, _ time.Time) error {
	h.lines = append(h.lines, "committed "+p.LSN)
	return nil
}

func showRow(row cdc.Row) string {
	if row == nil {
		return "-"
	}
	var values []string
	for _, v := range row {
		switch v.Kind {
		case cdc.Absent:
			values = append(values, "absent")
		case cdc.Null:
			values = append(values, "null")
		case cdc.Unclear:
			values = append(values, "unclear: "+v.Why)
		default:
			values = append(values, v.Text())
		}
	}
	return "(" + strings.Join(values, ", ") + ")"
}

func newDecoder(h cdc.Handler) *decoder {
	include, _ := cdc.NewInclude([]string{"public.*"})
	return &decoder{
		source: "shop", origin: origin{systemID: "71", timeline: 1}, out: h,
		slot: "s", hold: &holder{needed: func() bool { return false }}, handed: &atomic.Pointer[cdc.Position]{}, reached: &atomic.Pointer[progress]{},
		relations: newRelations("shop", include, func(_ context.Context, m relationMessage) (description, error) {
			d := description{types: make([]string, len(m.columns)), bases: make([]uint32, len(m.columns)), keys: []string{"id"}}
			for i, c := range m.columns {
				d.types[i] = fmt.Sprint("type ", c.oid)
			}
			return d, nil
		}, slog.New(slog.DiscardHandler)),
	}
}

func decode(t *testing.T, d *decoder, messages ...message) {
	t.Helper()
	for _, m := range messages {
		if err := d.message(t.Context(), string(m)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTuples(t *testing.T) {
	cases := []struct {
		what string
		row  message
		want string
	}{
		{"insert", msg('I').u32(7).tuple('N', "t1", `t\x00ff`, "tn"), `c public.users #0 - (1, \x00ff, n)`},
		{"null and empty differ", msg('I').u32(7).tuple('N', "t1", "n", "t"), "c public.users #0 - (1, null, )"},
		{"no old row", msg('U').u32(7).tuple('N', "t1", "n", "tn"), "u public.users #0 - (1, null, n)"},
		{"B4 a key tuple's nulls were not sent", msg('U').u32(7).tuple('K', "t1", "n", "n").tuple('N', "t2", "n", "tn"), "u public.users #0 (1, absent, absent) (2, null, n)"},
		{"a full old row's nulls are NULL", msg('U').u32(7).tuple('O', "t1", "n", "tm").tuple('N', "t1", "n", "tn"), "u public.users #0 (1, null, m) (1, null, n)"},
		{"B4 TOAST without an old row", msg('U').u32(7).tuple('N', "t1", "u", "tn"), "u public.users #0 - (1, absent, n)"},
		{"B4 TOAST beside a key tuple", msg('U').u32(7).tuple('K', "t1", "n", "n").tuple('N', "t2", "u", "u"), "u public.users #0 (1, absent, absent) (2, absent, absent)"},
		{"B4 TOAST in the key", msg('U').u32(7).tuple('K', "t1", "n", "n").tuple('N', "u", "n", "n"), "u public.users #0 (1, absent, absent) (1, null, null)"},
		{"B4 TOAST beside a full old row", msg('U').u32(7).tuple('O', "t1", `t\x01`, "tm").tuple('N', "t1", "u", "u"), `u public.users #0 (1, \x01, m) (1, \x01, m)`},
		{"delete by key", msg('D').u32(7).tuple('K', "t1", "n", "n"), "d public.users #0 (1, absent, absent) -"},
		{"delete of a full row", msg('D').u32(7).tuple('O', "t1", "n", "tm"), "d public.users #0 (1, null, m) -"},
		{"B3 binary", msg('I').u32(7).tuple('N', "b\x00\x01", "n", "n"), "c public.users #0 - (unclear: a value in binary form, null, null)"},
		{"bytea that is not in hex", msg('I').u32(7).tuple('N', "t1", `t\000`, "n"), "c public.users #0 - (1, unclear: a bytea that is not in hex, null)"},
		{"text that is not UTF-8", msg('I').u32(7).tuple('N', "t1", "n", "t\xff"), "c public.users #0 - (1, null, unclear: text that is not UTF-8)"},
	}
	for _, c := range cases {
		t.Run(c.what, func(t *testing.T) {
			h := &told{}
			decode(t, newDecoder(h), begin(), users(), c.row)
			if diff := cmp.Diff([]string{c.want}, h.lines); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChangeSaysWhereItComesFrom(t *testing.T) {
	h := &told{}
	decode(t, newDecoder(h), begin(), users(), msg('I').u32(7).tuple('N', "t1", "n", "n"))
	c := h.changes[0]
	h.changes[0].Columns, h.changes[0].After = nil, nil
	want := &cdc.RowChange{
		Source: "shop", Connector: cdc.Postgres, TableID: cdc.TableID{Database: "shop", Schema: "public", Table: "users"},
		Op: cdc.Insert, KeyColumns: []string{"id"}, CommitTime: committedAt, Tx: "4294967295",
		Position: cdc.Position{LSN: "1/10", SystemID: "71", Timeline: 1},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

// Tables that are not included cost nothing: their rows are not even read.
func TestOtherTablesAreDropped(t *testing.T) {
	h := &told{}
	other := msg('R').u32(8).name("private").name("x").u8('d').u16(1).u8(1).name("id").u32(pgtype.Int4OID).u32(0)
	decode(t, newDecoder(h), begin(), other, msg('I').u32(8).u8('?'), users(), msg('T').u32(2).u8(1).u32(8).u32(7), commit(0x100000040))
	if diff := cmp.Diff([]string{"t public.users #0 - -", "committed 1/40"}, h.lines); diff != "" {
		t.Error(diff)
	}
}

func TestMessages(t *testing.T) {
	h := &told{}
	d := newDecoder(h)
	decode(t, d,
		msg('M').u8(0).u64(0x99).name("cache").text("now"),
		begin(), msg('O').u64(1).name("elsewhere"), msg('Y').u32(1).name("public").name("mood"),
		msg('M').u8(1).u64(0x99).name("cache").text("feed:42"), commit(0x100000040))
	if len(h.changes) != 2 {
		t.Fatal(h.lines)
	}
	free, bound := h.changes[0], h.changes[1]
	if string(free.Content) != "now" || free.Tx != "" || free.Position.LSN != "0/99" || !free.CommitTime.IsZero() {
		t.Errorf("outside of a transaction: %+v", free)
	}
	if string(bound.Content) != "feed:42" || bound.Prefix != "cache" || bound.Tx != "4294967295" || bound.Position.LSN != "1/10" {
		t.Errorf("in a transaction: %+v", bound)
	}
}

// A keepalive moves the position on, but never in the middle of a transaction, and never back.
func TestIdle(t *testing.T) {
	h := &told{}
	d := newDecoder(h)
	idle := func(at lsn) {
		if err := d.idle(t.Context(), at, committedAt); err != nil {
			t.Fatal(err)
		}
	}
	idle(0x10)
	idle(0x10)
	decode(t, d, begin())
	idle(0x200000000)
	decode(t, d, commit(0x100000040))
	idle(0x100000040)
	idle(0x100000041)
	if diff := cmp.Diff([]string{"committed 0/10", "committed 1/40", "committed 1/41"}, h.lines); diff != "" {
		t.Error(diff)
	}
}

// The server repeats relation messages. Columns stay the same pointer while the layout does.
func TestColumns(t *testing.T) {
	h := &told{}
	d := newDecoder(h)
	row := msg('I').u32(7).tuple('N', "t1", "n", "n")
	decode(t, d, begin(), users(), row, users(), row)
	renamed := users()
	copy(renamed[len(renamed)-len("name\x00")-8:], "mail")
	decode(t, d, renamed, row)
	if h.changes[0].Columns != h.changes[1].Columns {
		t.Error("the same layout has new Columns")
	}
	want := []cdc.Column{{Name: "id", Type: "type 20", Key: true}, {Name: "raw", Type: "type 17"}, {Name: "mail", Type: "type 999999"}}
	if diff := cmp.Diff(want, h.changes[2].Columns.List); diff != "" {
		t.Error(diff)
	}
	if h.changes[0].Columns.List[2].Name != "name" {
		t.Error("a shared list was written")
	}
}

// Under REPLICA IDENTITY FULL every column is flagged; the record key is the primary key all the same.
func TestKeyUnderFullIdentity(t *testing.T) {
	h := &told{}
	full := msg('R').u32(7).name("public").name("users").u8('f').u16(2).
		u8(1).name("id").u32(pgtype.Int8OID).u32(0).u8(1).name("name").u32(pgtype.TextOID).u32(0)
	decode(t, newDecoder(h), begin(), full, msg('D').u32(7).tuple('O', "t1", "tx"))
	if diff := cmp.Diff([]string{"id"}, h.changes[0].KeyColumns); diff != "" {
		t.Error(diff)
	}
}

// Without the catalogue nothing is handed over: a record would lie in any partition under FULL, and a changed key would not be seen
// as one. The run ends, and the next asks again.
func TestCatalogueDoesNotAnswer(t *testing.T) {
	h := &told{}
	d := newDecoder(h)
	d.relations.describe = func(context.Context, relationMessage) (description, error) {
		return description{}, during("asking for a primary key", errors.New("connection reset"))
	}
	decode(t, d, begin())
	err := d.message(t.Context(), string(users()))
	if err == nil || !strings.Contains(err.Error(), "describing table public.users") {
		t.Fatalf("got %v", err)
	}
	if e := (&Feeder{cfg: Config{Name: "shop"}}).explain(err); !e.Retryable() {
		t.Errorf("a person would have to act: %v", e)
	}
	if len(h.lines) > 0 {
		t.Errorf("handed over %q", h.lines)
	}
}

func TestBrokenMessages(t *testing.T) {
	for what, m := range map[string]message{
		"empty":                 {},
		"unknown":               msg('S').u32(1),
		"short begin":           begin()[:10],
		"short commit":          commit(1)[:5],
		"short relation":        users()[:40],
		"name without end":      append(msg('R').u32(7), "public"...),
		"short tuple":           msg('I').u32(7).tuple('N', "t1", "n", "tlonger")[:20],
		"length beyond the end": msg('I').u32(7).u8('N').u16(3).u8('t').u32(0xffffffff),
		"too few columns":       msg('I').u32(7).tuple('N', "t1"),
		"no tuple":              msg('U').u32(7),
		"unknown tuple":         msg('I').u32(7).tuple('X', "t1", "n", "n"),
		"unknown column mark":   msg('I').u32(7).tuple('N', "t1", "n", "x"),
		"unknown relation":      msg('I').u32(8).tuple('N', "t1"),
		"truncate of unknown":   msg('T').u32(1).u8(0).u32(8),
		"short truncate":        msg('T').u32(0xffffffff).u8(0),
		"short message":         msg('M').u8(0).u64(1).name("p").u32(5),
	} {
		t.Run(what, func(t *testing.T) {
			h := &told{}
			d := newDecoder(h)
			decode(t, d, begin(), users())
			var s *cdc.SourceError
			if err := d.message(t.Context(), string(m)); !errors.As(err, &s) || s.Source != "shop" {
				t.Errorf("got %v", err)
			}
			if len(h.lines) > 0 {
				t.Errorf("the Handler was told %q", h.lines)
			}
		})
	}
}

// FuzzDecode feeds a stream of messages, each with its length before it: whatever comes, the decoder neither panics nor
// hands over a row that is not parallel to its columns.
func FuzzDecode(f *testing.F) {
	stream := func(messages ...message) []byte {
		var b []byte
		for _, m := range messages {
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(m))), m...)
		}
		return b
	}
	f.Add(stream(begin(), users(), msg('I').u32(7).tuple('N', "t1", `t\x00`, "u"), commit(9)))
	f.Add(stream(begin(), users(), msg('U').u32(7).tuple('K', "t1", "n", "n").tuple('N', "u", "n", "b1"), commit(9)))
	f.Add(stream(users(), msg('D').u32(7).tuple('O', "t1", "n", "n"), msg('T').u32(1).u8(3).u32(7)))
	f.Add(stream(msg('M').u8(1).u64(1).name("p").text("c"), msg('O').u64(1).name("o"), msg('Y').u32(1).name("a").name("b")))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &told{}
		d := newDecoder(h)
		for len(b) >= 2 {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			_ = d.message(context.Background(), string(b[2:2+n]))
			b = b[2+n:]
		}
		for _, c := range h.changes {
			for _, row := range []cdc.Row{c.Before, c.After} {
				if row != nil && len(row) != len(c.Columns.List) {
					t.Fatalf("%d values of %d columns", len(row), len(c.Columns.List))
				}
			}
		}
	})
}

func BenchmarkDecodeUpdate(b *testing.B) {
	d := newDecoder(discard{})
	for _, m := range []message{begin(), users()} {
		if err := d.message(b.Context(), string(m)); err != nil {
			b.Fatal(err)
		}
	}
	update := string(msg('U').u32(7).tuple('O', "t123456", "n", "tsome name").tuple('N', "t123456", "n", "tanother name"))
	b.ReportAllocs()
	for b.Loop() {
		_ = d.message(b.Context(), update)
	}
}

// A table without columns has rows all the same.
func TestRowsWithoutColumns(t *testing.T) {
	h := &told{}
	decode(t, newDecoder(h), begin(), msg('R').u32(9).name("public").name("none").u8('d').u16(0), msg('I').u32(9).tuple('N'))
	if want := []string{"c public.none #0 - ()"}; !cmp.Equal(want, h.lines) {
		t.Errorf("got %q", h.lines)
	}
}

type discard struct{}

func (discard) Lost(context.Context, cdc.Loss) error                      { return nil }
func (discard) Joined(context.Context, []cdc.TableID, cdc.Position) error { return nil }

func (discard) Started(context.Context, cdc.Position) error              { return nil }
func (discard) Change(context.Context, *cdc.RowChange) error             { return nil }
func (discard) Committed(context.Context, cdc.Position, time.Time) error { return nil }

func logical(transactional byte, content string) message {
	return msg('M').u8(transactional).u64(0x100000000).name(noticePrefix).text(content)
}

// A notice of our own is told at the end of its transaction, before the position passes it; another source's, and a
// heartbeat, are not told.
func TestNotices(t *testing.T) {
	h := &told{}
	d := newDecoder(h)
	decode(t, d, begin(), logical(1, `{"slot":"s","joined":[["public","v"],["other","x"]],"gone":[["public","u"],["other","y"]]}`), commit(0x100000020),
		begin(), logical(1, `{"slot":"another","joined":[["public","v"]],"gone":[["public","u"]]}`), commit(0x100000030),
		logical(0, "{}"), logical(0, `{"slot":"s","gone":[["public","u"]]}`))
	want := []string{"t public.u #0 - -", "joined [public.v] at 1/20", "committed 1/20", "committed 1/30"}
	if diff := cmp.Diff(want, h.lines); diff != "" {
		t.Error(diff)
	}
	h.refuse = errors.New("no")
	decode(t, d, begin(), logical(1, `{"slot":"s","joined":[["public","v"]]}`))
	if err := d.message(t.Context(), string(commit(0x100000040))); !errors.Is(err, h.refuse) {
		t.Errorf("got %v", err)
	}
	if h.lines[len(h.lines)-1] == "committed 1/40" {
		t.Error("the position has passed what was not written down")
	}
	decode(t, d, begin(), logical(1, "somebody's own"))
	if c := h.changes[len(h.changes)-1]; c.Op != cdc.Message || string(c.Content) != "somebody's own" {
		t.Errorf("%+v", c)
	}
}

func relationOf(id uint32, name string) message {
	return msg('R').u32(id).name("public").name(name).u8('d').u16(1).u8(1).name("id").u32(pgtype.Int8OID).u32(0xffffffff)
}

// Another relation behind a known name, and a known one under another name, empty the name.
func TestSwappedRelations(t *testing.T) {
	for what, c := range map[string]struct {
		relations []message
		want      []string
	}{
		"repeated":      {[]message{relationOf(1, "u"), relationOf(1, "u")}, nil},
		"renamed":       {[]message{relationOf(1, "u"), relationOf(1, "v")}, []string{"t public.u"}},
		"made anew":     {[]message{relationOf(1, "u"), relationOf(2, "u")}, []string{"t public.u"}},
		"swapped":       {[]message{relationOf(1, "u"), relationOf(2, "n"), relationOf(2, "u"), relationOf(1, "o")}, []string{"t public.n", "t public.u", "t public.u"}},
		"renamed first": {[]message{relationOf(1, "u"), relationOf(2, "n"), relationOf(1, "o"), relationOf(2, "u")}, []string{"t public.u", "t public.n"}},
	} {
		h := &told{}
		d := newDecoder(h)
		decode(t, d, begin())
		decode(t, d, c.relations...)
		var got []string
		for _, line := range h.lines {
			got = append(got, strings.Fields(line)[0]+" "+strings.Fields(line)[1])
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
