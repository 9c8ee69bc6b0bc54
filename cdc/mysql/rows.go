package mysql

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// rows decodes the rows of a table that is wanted. What cannot be decoded is lost, by name, and the source goes on.
func (r *reader) rows(ctx context.Context, e *replication.BinlogEvent, ev *replication.RowsEvent) error {
	t, err := r.tables.byNumber(ev.TableID)
	if err != nil || !t.wanted {
		return err
	}
	takes := r.tx.prepared == nil || r.tx.prepared.takes(t.id)
	switch {
	case t.broken != nil:
		r.lost([]cdc.TableID{t.id}, t.broken.Error(), t.hint)
		return nil
	case !takes:
		return nil // it will be read again
	}
	err = r.decode(ctx, e, ev, t.layout)
	if de := (decodeError{}); errors.As(err, &de) {
		r.lost([]cdc.TableID{t.id}, "decoding a row: "+de.Error(), "report it with the table's definition")
		return nil
	}
	return err
}

// decodeError is told from what a Handler returns.
type decodeError struct{ error }

func (r *reader) decode(ctx context.Context, e *replication.BinlogEvent, ev *replication.RowsEvent, l *layout) error {
	if len(ev.Rows) != 1 {
		return nil
	}
	body := []byte(ev.Rows[0][0].(undecoded))
	op := cdc.Insert
	switch e.Header.EventType {
	case replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1,
		replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1:
		var err error
		if body, err = mysql.DecompressMariadbData(body); err != nil {
			return decodeError{err}
		}
	}
	switch {
	case len(ev.ColumnBitmap2) > 0:
		op = cdc.Update
	case ev.Type() == replication.EnumRowsEventTypeDelete:
		op = cdc.Delete
	}
	if int(ev.ColumnCount) != len(l.list) {
		return decodeError{fmt.Errorf("a row has %d columns, its table map %d", ev.ColumnCount, len(l.list))}
	}
	d := rowDecoder{layout: l, json: r.json, partial: e.Header.EventType == replication.PARTIAL_UPDATE_ROWS_EVENT}
	in := &cursor{s: unsafe.String(unsafe.SliceData(body), len(body))} // of memory that is this event's alone, and never written again
	var c *cdc.RowChange                                               // one for all rows
	var before, after cdc.Row
	for in.pos < len(in.s) {
		start := in.pos
		var err error
		if op != cdc.Insert {
			if before, err = d.image(before[:0], in, bitmap(ev.ColumnBitmap1), false); err != nil {
				return decodeError{err}
			}
		}
		switch op {
		case cdc.Insert:
			after, err = d.image(after[:0], in, bitmap(ev.ColumnBitmap1), false)
		case cdc.Update:
			after, err = d.image(after[:0], in, bitmap(ev.ColumnBitmap2), true)
		}
		if err != nil {
			return decodeError{err}
		}
		if c == nil {
			c = r.change(e, op, l.id)
			c.Columns, c.KeyColumns = l.columns, l.key
		} else {
			c.Ordinal = r.tx.ordinal
			r.tx.ordinal++
		}
		c.Before, c.After = before, after
		if in.pos == start {
			return decodeError{errors.New("a row image without a single column")}
		}
		if err := r.emit(ctx, c, in.pos-start); err != nil {
			return err
		}
	}
	return nil
}

// emit hands a change over, or keeps it until its transaction is committed. size is its bytes in the log.
func (r *reader) emit(ctx context.Context, c *cdc.RowChange, size int) error {
	if p := r.tx.prepared; p != nil {
		r.xa.keep(p, c, size)
		return nil
	}
	return r.out.Change(ctx, c)
}
