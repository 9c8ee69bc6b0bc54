package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"

	"invalidator/cdc"
)

// reader turns the events of one dump into calls of a Handler. It belongs to Run's goroutine.
type reader struct {
	f      *Feeder
	server *server
	track  *tracker
	out    cdc.Handler
	tables *tables
	json   *jsonDecoder

	checksum int // bytes at each event's end; of the file that is read

	start cdc.Position // behind the last transaction that ended: where the present one begins
	tx    transaction
}

// transaction is the one that is being read.
type transaction struct {
	gtid    gtid
	text    string    // its GTID as text
	at      time.Time // commit time
	begun   bool      // it ends with an event of its own, and not with its first statement
	ordinal int64
}

func newReader(f *Feeder, srv *server, track *tracker, out cdc.Handler) *reader {
	return &reader{f: f, server: srv, track: track, out: out, start: track.position(), tables: newTables(f, srv)}
}

// read hands over events until the stream ends, which is always an error.
func (r *reader) read(ctx context.Context, s *stream) (err error) {
	if r.json, err = newJSONDecoder(); err != nil {
		return r.f.fail(err, "this is a fault of the program", false)
	}
	for {
		e, err := s.next(ctx)
		if err != nil {
			return r.f.classify(err, r.start)
		}
		err = r.event(ctx, e, r.checksum)
		s.done(e)
		if err != nil {
			return err
		}
	}
}

// event handles one event. Every kind that may hold rows, or end a transaction, is named here; the rest is refused unless it
// is known to hold none.
func (r *reader) event(ctx context.Context, e *replication.BinlogEvent, checksum int) error {
	switch ev := e.Event.(type) {
	case *replication.RotateEvent:
		r.track.file, r.track.pos = string(ev.NextLogName), ev.Position
		return nil
	case *replication.FormatDescriptionEvent:
		r.tables.forget() // another file, maybe of a server that was started anew: its table numbers begin again
		r.checksum = 0
		if ev.ChecksumAlgorithm == replication.BINLOG_CHECKSUM_ALG_CRC32 {
			r.checksum = replication.BinlogChecksumLength
		}
		return nil
	case *replication.GTIDEvent:
		return r.begin(e, ev)
	case *replication.GtidTaggedLogEvent:
		return r.begin(e, &ev.GTIDEvent)
	case *replication.MariadbGTIDEvent:
		r.tx = transaction{gtid: gtid{maria: ev.GTID}, text: ev.GTID.String(), at: headerTime(e), begun: !ev.IsStandalone()}
		return nil
	case *replication.QueryEvent:
		return r.query(ctx, e, ev)
	case *replication.XIDEvent:
		return r.end(ctx, e)
	case *replication.TableMapEvent:
		return r.tables.see(ctx, ev, e.RawData[replication.EventHeaderSize:len(e.RawData)-checksum], r.start)
	case *replication.RowsEvent:
		return r.rows(ctx, e, ev)
	case *replication.TransactionPayloadEvent:
		for _, inner := range ev.Events {
			inner.Header.LogPos = e.Header.LogPos // its own is no place in the file
			if err := r.event(ctx, inner, 0); err != nil {
				return err
			}
		}
		return nil
	}
	return r.other(ctx, e)
}

// other handles events that carry no data that we read.
func (r *reader) other(ctx context.Context, e *replication.BinlogEvent) error {
	switch e.Header.EventType {
	case replication.XA_PREPARE_LOG_EVENT:
		if g, ok := e.Event.(*replication.GenericEvent); ok && r.tx.ordinal > 0 && (len(g.Data) == 0 || g.Data[0] == 0) { // not ONE PHASE
			r.f.log.Warn("rows of an XA transaction were handed over at its XA PREPARE, before its XA COMMIT shows them", "gtid", r.tx.text)
		}
		return r.end(ctx, e)
	case replication.INCIDENT_EVENT:
		return r.f.gap(r.start, errors.New("the server says that its log lacks events (an incident event)"))
	case replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2, replication.STOP_EVENT, replication.INTVAR_EVENT,
		replication.RAND_EVENT, replication.USER_VAR_EVENT, replication.IGNORABLE_EVENT, replication.ROWS_QUERY_EVENT,
		replication.PREVIOUS_GTIDS_EVENT, replication.TRANSACTION_CONTEXT_EVENT, replication.VIEW_CHANGE_EVENT,
		replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT,
		replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT,
		replication.BEGIN_LOAD_QUERY_EVENT, replication.APPEND_BLOCK_EVENT, replication.DELETE_FILE_EVENT:
		return nil
	case replication.EXECUTE_LOAD_QUERY_EVENT:
		r.f.log.Error("LOAD DATA was logged as a statement: its rows are not seen", "gtid", r.tx.text, "hint", rowFormatHint)
		if r.tx.begun {
			return nil
		}
		return r.end(ctx, e)
	}
	if e.Header.Flags&replication.LOG_EVENT_IGNORABLE_F != 0 {
		return nil
	}
	err := r.f.fail(fmt.Errorf("event type %d of the binary log is not known, and it may hold rows", e.Header.EventType),
		"a newer version of this program may know it", false)
	err.At = r.start
	return err
}

const rowFormatHint = "SET GLOBAL binlog_format = ROW, and let sessions that are older than that reconnect"

// begin starts a transaction of MySQL, which ends with its first statement unless that is BEGIN.
func (r *reader) begin(e *replication.BinlogEvent, ev *replication.GTIDEvent) error {
	r.tx = transaction{at: headerTime(e)}
	if us := ev.OriginalCommitTimestamp; us != 0 {
		r.tx.at = time.UnixMicro(int64(us)).UTC()
	}
	if e.Header.EventType == replication.ANONYMOUS_GTID_EVENT {
		return nil
	}
	sid, err := uuid.FromBytes(ev.SID)
	if err != nil {
		return r.f.fail(fmt.Errorf("reading a GTID event: %w", err), "", false)
	}
	g := &r.tx.gtid.mysql
	g.sid, g.tag, g.gno = sid, ev.Tag, ev.GNO
	r.tx.text = r.tx.gtid.text()
	return nil
}

func headerTime(e *replication.BinlogEvent) time.Time {
	return time.Unix(int64(e.Header.Timestamp), 0).UTC()
}

// end hands over that the transaction is complete. Nothing but this moves the position.
func (r *reader) end(ctx context.Context, e *replication.BinlogEvent) error {
	r.track.ended(&r.tx.gtid, uint64(e.Header.LogPos))
	r.start = r.track.position()
	at := r.tx.at
	if at.IsZero() {
		at = headerTime(e)
	}
	r.tx = transaction{}
	return r.out.Committed(ctx, r.start, at)
}

func (r *reader) query(ctx context.Context, e *replication.BinlogEvent, ev *replication.QueryEvent) error {
	st := recognise(string(ev.Query), string(ev.Schema))
	switch st.verb {
	case verbBegin:
		r.tx.begun = true
		return nil
	case verbInside:
		return nil
	case verbEnd:
		// ROLLBACK too: rows of engines without transactions stay changed, and the others' were handed over for nothing.
		return r.end(ctx, e)
	case verbTruncate:
		r.tables.forget()
		if r.f.cfg.Include.Match(st.table.Schema, st.table.Table) {
			c := r.change(e, cdc.Truncate, st.table)
			c.Columns = cdc.NewColumns(nil)
			if err := r.out.Change(ctx, c); err != nil {
				return err
			}
		}
	case verbRows:
		if st.table.Table == "" || r.f.cfg.Include.Match(st.table.Schema, st.table.Table) {
			r.f.log.Error("a statement was logged as text: the rows it changed are not seen", "statement", st.word,
				"table", st.table.String(), "database", string(ev.Schema), "gtid", r.tx.text, "hint", rowFormatHint)
		}
	case verbOther:
		r.tables.forget()
	}
	if r.tx.begun {
		return nil
	}
	return r.end(ctx, e)
}

// change makes the next change of the transaction.
func (r *reader) change(e *replication.BinlogEvent, op cdc.Op, id cdc.TableID) *cdc.RowChange {
	c := &cdc.RowChange{Source: r.f.cfg.Name, Connector: r.server.connector(), TableID: id, Op: op,
		CommitTime: r.tx.at, Position: r.start, Tx: r.tx.text, Ordinal: r.tx.ordinal}
	if c.CommitTime.IsZero() {
		c.CommitTime = headerTime(e)
	}
	r.tx.ordinal++
	return c
}

// rows decodes the rows of a table that is wanted.
func (r *reader) rows(ctx context.Context, e *replication.BinlogEvent, ev *replication.RowsEvent) error {
	l, err := r.tables.layoutOf(ev.TableID)
	if l == nil {
		return err // not ours, or not known
	}
	if err := r.decode(ctx, e, ev, l); err != nil {
		var se *cdc.SourceError
		if de := (decodeError{}); errors.As(err, &de) {
			se = r.f.fail(fmt.Errorf("decoding a row: %w", de.error), "report it with the table's definition", false)
			se.Table, se.At = l.id, r.start
			return se
		}
		return err
	}
	return nil
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
	in := &cursor{s: string(body)} // the one copy: nothing that is handed over lies in the driver's memory
	for in.pos < len(in.s) {
		start := in.pos
		c := r.change(e, op, l.id)
		c.Columns, c.KeyColumns = l.columns, l.key
		row, err := d.image(in, bitmap(ev.ColumnBitmap1), false)
		if err != nil {
			return decodeError{err}
		}
		if c.Before = row; op == cdc.Insert {
			c.Before, c.After = nil, row
		}
		if op == cdc.Update {
			if c.After, err = d.image(in, bitmap(ev.ColumnBitmap2), true); err != nil {
				return decodeError{err}
			}
		}
		if in.pos == start {
			return decodeError{errors.New("a row image without a single column")}
		}
		if err := r.out.Change(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
