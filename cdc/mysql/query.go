package mysql

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

const rowFormatHint = "SET GLOBAL binlog_format = ROW, and let sessions that are older than that reconnect"

// query handles a statement in the log.
func (r *reader) query(ctx context.Context, e *replication.BinlogEvent, ev *replication.QueryEvent) error {
	st := recognise(string(ev.Query), string(ev.Schema))
	st.as(r.server)
	switch st.verb {
	case verbBegin:
		r.tx.begun = true
		return nil
	case verbInside:
		return nil
	case verbXAStart:
		r.beginXA()
		return nil
	case verbXACommit, verbXARollback:
		return r.endXA(ctx, e, st)
	case verbEnd:
		// ROLLBACK too: rows of engines without transactions stay changed, and the others' were handed over for nothing.
		return r.end(ctx, e)
	}
	if err := r.rowsWithoutImages(ctx, e, st); err != nil {
		return err
	}
	if err := r.tables.altered(ctx, st, r); err != nil || r.tx.begun {
		return err
	}
	return r.end(ctx, e)
}

// rowsWithoutImages tells of rows that a statement changed and that the log does not show.
func (r *reader) rowsWithoutImages(ctx context.Context, e *replication.BinlogEvent, st statement) error {
	switch st.verb {
	case verbTruncate:
		return r.truncate(ctx, e, st.tables)
	case verbDropDatabase:
		return r.dropDatabase(ctx, e, st)
	case verbLost:
		hint := rowFormatHint
		if strings.HasPrefix(st.why, "ALTER") {
			hint = "the log never shows these rows: flush the pools that they feed"
		}
		r.lost(st.tables, st.why, hint)
	}
	return nil
}

// truncate tells of tables all of whose rows went or came.
func (r *reader) truncate(ctx context.Context, e *replication.BinlogEvent, tables []cdc.TableID) error {
	for _, id := range tables {
		if !r.server.included(id) {
			continue
		}
		c := r.change(e, cdc.Truncate, id)
		c.Columns = cdc.NewColumns(nil)
		if err := r.out.Change(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// dropDatabase: each of its tables that we know of. Where the log that is read is older than what the catalogue told us, there
// may have been others.
func (r *reader) dropDatabase(ctx context.Context, e *replication.BinlogEvent, st statement) error {
	known := r.tables.of(st.tables[0].Schema)
	if err := r.truncate(ctx, e, known); err != nil {
		return err
	}
	if r.tables.knowsAll(r.track) {
		return nil
	}
	r.lost(st.tables, "DROP DATABASE: not all tables that it had are known", "flush the pools of all its tables")
	return nil
}

// loaded handles LOAD DATA that was logged as a statement: its text stands behind 26 bytes, the status variables, whose length is
// at 11, and the database, whose length is at 8.
func (r *reader) loaded(ctx context.Context, e *replication.BinlogEvent, body []byte) error {
	const head = 26
	st := statement{tables: []cdc.TableID{{}}, why: "LOAD was logged as a statement"}
	if len(body) > head {
		database := head + int(binary.LittleEndian.Uint16(body[11:]))
		text := database + int(body[8]) + 1
		if text < len(body) {
			st = recognise(string(body[text:]), string(body[database:text-1]))
		}
	}
	st.as(r.server)
	if r.lost(st.tables, st.why, rowFormatHint); r.tx.begun {
		return nil
	}
	return r.end(ctx, e)
}
