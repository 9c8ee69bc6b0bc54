package mysql

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

// rowsTaken counts rows, and keeps their texts where it is asked to.
type rowsTaken struct {
	cdc.Handler
	rows  int
	lines *[]string
}

func (h *rowsTaken) Change(_ context.Context, c *cdc.RowChange) error {
	h.rows++
	if h.lines != nil {
		*h.lines = append(*h.lines, lineOf(c))
	}
	return nil
}

func lineOf(c *cdc.RowChange) string {
	return fmt.Sprintf("%s %d %v %v", c.Op, c.Ordinal, c.Before, c.After)
}

// anEvent is one of rows (id bigint, name varchar) with these ids; in an update each id becomes its successor.
func anEvent(kind replication.EventType, ids ...int64) (*replication.BinlogEvent, *replication.RowsEvent, *layout) {
	l := &layout{key: []string{"id"}, list: []column{
		{name: "id", kind: mysql.MYSQL_TYPE_LONGLONG}, {name: "name", kind: mysql.MYSQL_TYPE_VARCHAR, meta: 20, charset: "utf8mb4"}}}
	l.finish()
	var body []byte
	row := func(id int64) {
		body = append(body, 0)
		for i := range 8 {
			body = append(body, byte(uint64(id)>>(8*i)))
		}
		name := strconv.FormatInt(id, 10)
		body = append(append(body, byte(len(name))), name...)
	}
	e := &replication.BinlogEvent{Header: &replication.EventHeader{EventType: kind}}
	ev := &replication.RowsEvent{ColumnCount: 2, ColumnBitmap1: []byte{3}}
	for _, id := range ids {
		row(id)
		if kind == replication.UPDATE_ROWS_EVENTv2 {
			ev.ColumnBitmap2 = []byte{3}
			row(id + 1)
		}
	}
	ev.Rows = [][]any{{undecoded(body)}}
	return e, ev, l
}

// Rows of an event lie in the same memory one after another, and what is kept of them does not.
func TestRowsOfAnEvent(t *testing.T) {
	ids := []int64{7, -1, 1234567, math.MaxInt64 - 1}
	text := func(id int64) string {
		s := strconv.FormatInt(id, 10)
		return fmt.Sprint(cdc.Row{{Kind: cdc.Integer, S: s}, {Kind: cdc.Text, S: s}})
	}
	for _, kind := range []replication.EventType{replication.WRITE_ROWS_EVENTv2, replication.UPDATE_ROWS_EVENTv2} {
		var got, want, kept []string
		for i, id := range ids {
			if kind == replication.WRITE_ROWS_EVENTv2 {
				want = append(want, fmt.Sprintf("c %d [] %s", i, text(id)))
			} else {
				want = append(want, fmt.Sprintf("u %d %s %s", i, text(id), text(id+1)))
			}
		}
		e, ev, l := anEvent(kind, ids...)
		r := &reader{f: &Feeder{}, server: &server{}, out: &rowsTaken{lines: &got}}
		if err := r.decode(t.Context(), e, ev, l); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		p := &prepared{}
		r = &reader{f: &Feeder{}, server: &server{}, xa: newPrepareds(), tx: transaction{prepared: p}}
		if err := r.decode(t.Context(), e, ev, l); err != nil {
			t.Fatal(err)
		}
		for _, c := range p.kept {
			kept = append(kept, lineOf(c))
		}
		if diff := cmp.Diff(want, kept); diff != "" {
			t.Errorf("prepared: -want +got\n%s", diff)
		}
	}
}

// What an event of many rows allocates does not grow with them, but for the texts of their numbers, many at a time.
func TestRowsAllocateLittle(t *testing.T) {
	var ids []int64
	for i := range int64(1000) {
		ids = append(ids, 1_000_000+i)
	}
	e, ev, l := anEvent(replication.WRITE_ROWS_EVENTv2, ids...)
	out := &rowsTaken{}
	r := &reader{f: &Feeder{}, server: &server{}, out: out}
	if n := testing.AllocsPerRun(20, func() {
		if err := r.decode(t.Context(), e, ev, l); err != nil {
			t.Fatal(err)
		}
	}); n > 20 {
		t.Errorf("%v allocations for %d rows", n, len(ids))
	}
	if out.rows < 20*len(ids) {
		t.Errorf("%d rows", out.rows)
	}
}

// Texts of numbers stay when more of them are made in the same memory.
func TestNumbers(t *testing.T) {
	in := &cursor{}
	var got, want []string
	for shift := range 64 {
		for _, v := range []int64{1<<shift - 1, 1 << shift, -1 << shift, 99, 100} {
			got = append(got, in.number(uint64(max(v, -v)), v < 0), in.number(uint64(v), false))
			want = append(want, strconv.FormatInt(v, 10), strconv.FormatUint(uint64(v), 10))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
