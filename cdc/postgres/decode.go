package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"invalidator/cdc"
)

// decoder turns the stream's messages into calls of a Handler. It belongs to Run's goroutine.
type decoder struct {
	source    string
	slot      string
	origin    origin
	relations relations
	hold      *holder
	out       cdc.Handler

	done    lsn                           // behind everything handed over
	handed  *atomic.Pointer[cdc.Position] // Feeder.handed
	reached *atomic.Pointer[progress]     // Feeder.reached
	open    bool
	tx      transaction // the last that began
	row     rowMemory
}

// rowMemory is where each row change is read into.
type rowMemory struct {
	change        cdc.RowChange
	before, after cdc.Row
}

// transaction is what its changes have in common.
type transaction struct {
	at      time.Time
	commit  lsn          // where its commit record begins
	start   cdc.Position // the same: a start from here brings the whole transaction
	xid     string
	ordinal int64         // of the next change
	joined  []cdc.TableID // fed from its end on
}

// message handles one pgoutput message.
func (d *decoder) message(ctx context.Context, text string) error {
	c := &cursor{s: text}
	kind := c.byte()
	var err error
	switch kind {
	case msgBegin:
		err = d.begin(ctx, c)
	case msgCommit:
		err = d.commit(ctx, c)
	case msgRelation:
		var m relationMessage
		if m, err = parseRelation(c); err == nil {
			var gone []cdc.TableID
			if gone, err = d.relations.put(ctx, m); err == nil {
				err = d.gone(ctx, gone)
			}
		}
	case msgInsert, msgUpdate, msgDelete:
		err = d.rowChange(ctx, kind, c)
	case msgTruncate:
		err = d.truncate(ctx, c)
	case msgMessage:
		err = d.logical(ctx, c)
	case msgOrigin, msgType: // where a change was made first, and a type's name: the catalogue says more
	default:
		err = fmt.Errorf("no message of protocol version 1 begins with %q", kind)
	}
	if err != nil {
		return d.failed(err, fmt.Sprintf("decoding message %q", kind))
	}
	return nil
}

// begin hands nothing over before readers see the transaction.
func (d *decoder) begin(ctx context.Context, c *cursor) error {
	m, err := parseBegin(c)
	if err != nil {
		return err
	}
	d.open = true
	d.tx = transaction{at: m.at, commit: m.commit, start: d.origin.position(m.commit), xid: strconv.FormatUint(uint64(m.xid), 10)}
	return d.hold.wait(ctx, m.xid)
}

func (d *decoder) commit(ctx context.Context, c *cursor) error {
	m, err := parseCommit(c)
	if err != nil {
		return err
	}
	d.open, d.done = false, m.end
	end := d.origin.position(m.end)
	if d.tx.ordinal > 0 {
		d.handed.Store(&end)
	}
	if len(d.tx.joined) > 0 {
		if err := d.out.Joined(ctx, d.tx.joined, end); err != nil {
			return handlerFailed(err)
		}
	}
	d.reached.Store(&progress{d.done, m.at})
	return handlerFailed(d.out.Committed(ctx, end, m.at))
}

// idle says that the server's log has moved on to end with nothing in it for us: every transaction that ended before end
// came before this word of the server, and has been handed over.
func (d *decoder) idle(ctx context.Context, end lsn, at time.Time) error {
	if d.open || end < d.done {
		return nil
	}
	if end == d.done { // nothing was written: the server's time alone has moved on
		d.reached.Store(&progress{end, at})
		return nil
	}
	d.done = end
	d.reached.Store(&progress{end, at})
	return handlerFailed(d.out.Committed(ctx, d.origin.position(end), at))
}

func (d *decoder) rowChange(ctx context.Context, kind byte, c *cursor) error {
	m, err := parseRow(c)
	if err != nil {
		return err
	}
	rel, err := d.relation(m.relation)
	if err != nil || !rel.included {
		return err
	}
	ch, err := d.row.read(m, rel)
	if err != nil {
		return &cdc.SourceError{Source: d.source, Table: rel.table, At: d.tx.start, Err: fmt.Errorf("reading a row: %w", err)}
	}
	switch kind {
	case msgInsert:
		ch.Op = cdc.Insert
	case msgUpdate:
		ch.Op = cdc.Update
	case msgDelete:
		ch.Op = cdc.Delete
	}
	return d.change(ctx, rel, ch)
}

// read reads the images of a row change. An update has no old one where the replica identity did not change.
func (mem *rowMemory) read(m rowMessage, rel *relation) (*cdc.RowChange, error) {
	mem.change = cdc.RowChange{}
	ch := &mem.change
	err := m.tuples(func(kind byte, c *cursor) (err error) {
		if kind == tupleNew {
			mem.after, err = readTuple(mem.after[:0], c, rel, false)
			ch.After = mem.after
		} else {
			mem.before, err = readTuple(mem.before[:0], c, rel, kind == tupleKey)
			ch.Before = mem.before
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if ch.Before == nil && ch.After == nil {
		return nil, errShortMessage
	}
	for i := range ch.After { // an unchanged TOAST value is in the old row, where the log has that
		if ch.After[i].Kind == cdc.Absent && ch.Before != nil {
			ch.After[i] = ch.Before[i]
		}
	}
	return ch, nil
}

func (d *decoder) truncate(ctx context.Context, c *cursor) error {
	m, err := parseTruncate(c)
	if err != nil {
		return err
	}
	for _, id := range m.relations {
		rel, err := d.relation(id)
		if err != nil {
			return err
		}
		if !rel.included {
			continue
		}
		if err := d.change(ctx, rel, &cdc.RowChange{Op: cdc.Truncate}); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) logical(ctx context.Context, c *cursor) error {
	m, err := parseMessage(c)
	if err != nil {
		return err
	}
	if m.prefix == noticePrefix {
		if n, ok := parseNotice(m.content); ok {
			return d.notice(ctx, m.transactional, n)
		}
	}
	ch := &cdc.RowChange{Op: cdc.Message, Prefix: m.prefix, Content: []byte(m.content)}
	if m.transactional {
		return d.change(ctx, &relation{}, ch)
	}
	// Outside of any transaction. The next keepalive lies behind it.
	ch.Source, ch.Connector, ch.Position = d.source, cdc.Postgres, d.origin.position(m.at)
	ch.Database = d.relations.database
	return handlerFailed(d.out.Change(ctx, ch))
}

// notice is a message of our own: a heartbeat, or what happened to the tables of a publication.
func (d *decoder) notice(ctx context.Context, transactional bool, n notice) error {
	if !transactional || n.Slot != d.slot {
		return nil
	}
	d.tx.joined = append(d.tx.joined, included(d.relations.include, d.relations.database, n.Joined)...)
	gone := included(d.relations.include, d.relations.database, n.Gone)
	for _, t := range gone {
		delete(d.relations.byName, t) // the new relation behind the name is no news then
	}
	return d.gone(ctx, gone)
}

// gone hands over that every row that stood under these names may be gone: the tables were dropped, renamed or detached.
func (d *decoder) gone(ctx context.Context, tables []cdc.TableID) error {
	for _, t := range tables {
		if err := d.change(ctx, &relation{table: t}, &cdc.RowChange{Op: cdc.Truncate}); err != nil {
			return err
		}
	}
	return nil
}

// change hands over a change of the open transaction.
func (d *decoder) change(ctx context.Context, rel *relation, ch *cdc.RowChange) error {
	ch.Source, ch.Connector = d.source, cdc.Postgres
	ch.TableID, ch.Columns, ch.KeyColumns = rel.table, rel.columns, rel.keyNames
	ch.Database = d.relations.database
	ch.CommitTime, ch.Position, ch.Tx, ch.Ordinal = d.tx.at, d.tx.start, d.tx.xid, d.tx.ordinal
	if d.tx.ordinal == 0 {
		behind := d.origin.position(d.tx.commit + 1)
		d.handed.Store(&behind)
	}
	d.tx.ordinal++
	return handlerFailed(d.out.Change(ctx, ch))
}

func (d *decoder) relation(id uint32) (*relation, error) {
	rel := d.relations.byID[id]
	if rel == nil {
		return nil, fmt.Errorf("relation %d was never described", id)
	}
	return rel, nil
}
