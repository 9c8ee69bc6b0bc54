package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

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
	xa     *prepareds // nil where again is set
	again  *prepared  // the group that is read a second time, whose rows are handed over as they come
	losses losses

	checksum int    // bytes at each event's end; of the file that is read
	at       uint64 // where the present event ends in the file; 0 where the log does not say

	start cdc.Position // behind the last transaction that ended: where the present one begins
	tx    transaction
}

// transaction is the one that is being read.
type transaction struct {
	gtid     gtid
	text     string    // its GTID as text
	at       time.Time // commit time
	place    uint64    // where its first event begins in the file; 0 where the log does not say
	begun    bool      // it ends with an event of its own, and not with its first statement
	prepared *prepared // its rows are kept until a later transaction commits them
	ordinal  int64
}

func newReader(f *Feeder, srv *server, track *tracker, out cdc.Handler) *reader {
	return &reader{f: f, server: srv, track: track, out: out, start: track.position(), tables: newTables(f, srv), xa: newPrepareds()}
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
	r.at = uint64(e.Header.LogPos)
	switch ev := e.Event.(type) {
	case *replication.RotateEvent:
		r.track.file, r.track.pos = string(ev.NextLogName), ev.Position
		return nil
	case *replication.FormatDescriptionEvent:
		r.tables.renumber() // another file, maybe of a server that was started anew: its table numbers begin again
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
		r.tx = transaction{gtid: gtid{maria: ev.GTID}, text: ev.GTID.String(), at: headerTime(e), place: placeOf(e), begun: !ev.IsStandalone()}
		if ev.Flags&mariaPreparedXA != 0 {
			r.beginXA()
		}
		return nil
	case *replication.QueryEvent:
		return r.query(ctx, e, ev)
	case *replication.XIDEvent:
		return r.end(ctx, e)
	case *replication.TableMapEvent:
		return r.tables.see(ctx, ev, e.RawData[replication.EventHeaderSize:len(e.RawData)-checksum], r)
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
	return r.other(ctx, e, checksum)
}

// other handles events that carry no data that we read.
func (r *reader) other(ctx context.Context, e *replication.BinlogEvent, checksum int) error {
	switch e.Header.EventType {
	case replication.XA_PREPARE_LOG_EVENT:
		return r.prepare(ctx, e, e.RawData[replication.EventHeaderSize:len(e.RawData)-checksum])
	case replication.EXECUTE_LOAD_QUERY_EVENT:
		return r.loaded(ctx, e, e.RawData[replication.EventHeaderSize:len(e.RawData)-checksum])
	case replication.INCIDENT_EVENT:
		return r.f.gap(r.start, errors.New("the server says that its log lacks events (an incident event)"))
	case replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2:
		if r.again != nil {
			return nil
		}
		return r.idle(ctx)
	case replication.STOP_EVENT, replication.INTVAR_EVENT,
		replication.RAND_EVENT, replication.USER_VAR_EVENT, replication.IGNORABLE_EVENT, replication.ROWS_QUERY_EVENT,
		replication.PREVIOUS_GTIDS_EVENT, replication.TRANSACTION_CONTEXT_EVENT, replication.VIEW_CHANGE_EVENT,
		replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.MARIADB_BINLOG_CHECKPOINT_EVENT,
		replication.MARIADB_GTID_LIST_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT,
		replication.BEGIN_LOAD_QUERY_EVENT, replication.APPEND_BLOCK_EVENT, replication.DELETE_FILE_EVENT:
		return nil
	}
	if e.Header.Flags&replication.LOG_EVENT_IGNORABLE_F != 0 {
		return nil
	}
	err := r.f.fail(fmt.Errorf("event type %d of the binary log is not known, and it may hold rows", e.Header.EventType),
		"a newer version of this program may know it", false)
	err.At = r.start
	return err
}

// begin starts a transaction of MySQL, which ends with its first statement unless that is BEGIN.
func (r *reader) begin(e *replication.BinlogEvent, ev *replication.GTIDEvent) error {
	r.tx = transaction{at: headerTime(e), place: placeOf(e)}
	// On a replica there are two times. Its own is when the row changed there; readers see the later of both.
	if us := max(ev.OriginalCommitTimestamp, ev.ImmediateCommitTimestamp); us != 0 {
		r.tx.at = time.UnixMicro(int64(us)).UTC()
	}
	if e.Header.EventType == replication.ANONYMOUS_GTID_EVENT {
		return nil
	}
	g, err := mysqlGTIDOf(ev)
	if err != nil {
		return r.f.fail(err, "", false)
	}
	r.tx.gtid = g
	r.tx.text = r.tx.gtid.text()
	return nil
}

func headerTime(e *replication.BinlogEvent) time.Time {
	return time.Unix(int64(e.Header.Timestamp), 0).UTC()
}

// placeOf is where an event begins in its file; 0 where the log does not say.
func placeOf(e *replication.BinlogEvent) uint64 {
	if e.Header.LogPos <= e.Header.EventSize {
		return 0
	}
	return uint64(e.Header.LogPos - e.Header.EventSize)
}

// end moves the position behind the transaction, which is complete, and hands that over. Nothing but this moves it.
func (r *reader) end(ctx context.Context, e *replication.BinlogEvent) error {
	r.track.ended(&r.tx.gtid, uint64(e.Header.LogPos))
	return r.ended(ctx, e)
}

func (r *reader) ended(ctx context.Context, e *replication.BinlogEvent) error {
	r.start = r.track.position()
	at := r.tx.at
	if at.IsZero() {
		at = headerTime(e)
	}
	r.tx = transaction{}
	return r.commit(ctx, at)
}

// behind is the position behind the present transaction, if it ended here.
func (r *reader) behind() cdc.Position {
	t := r.track.cloneAll()
	t.ended(&r.tx.gtid, r.at)
	return t.position()
}

// commit tells the place up to which all was handed over, unless losses are still to be told.
func (r *reader) commit(ctx context.Context, at time.Time) error {
	if r.xa != nil {
		r.xa.remind(r.f.log)
	}
	if told, err := r.losses.tell(ctx, r.out); !told || err != nil {
		return err
	}
	return r.out.Committed(ctx, r.safe(), at)
}

// safe is the place to save: behind everything that was handed over, and before what is kept for later. A GTID set of MySQL
// lacks those alone.
func (r *reader) safe() cdc.Position {
	if r.track.executed == nil && r.xa != nil {
		if p := r.xa.oldest(); p != nil {
			return p.before.position()
		}
	}
	return r.start
}

// idle is called while the server has nothing to send: what was read is all there is, as of now.
func (r *reader) idle(ctx context.Context) error {
	if r.tx.begun || r.tx.text != "" {
		return nil
	}
	return r.commit(ctx, time.Now().UTC())
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
