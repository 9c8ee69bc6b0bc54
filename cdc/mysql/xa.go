package mysql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// An XA transaction has two places in the log: its rows stand at XA PREPARE, when nobody may see them yet and they may still be
// rolled back, and XA COMMIT is a transaction of its own, hours later perhaps, that only names it. Rows are handed over at
// XA COMMIT, under its GTID and time. Until then they are kept, small ones here, and the others by their place in the log,
// from which they are read again.

// mariaPreparedXA is the flag of a MariaDB GTID event whose group ends with XA PREPARE.
const mariaPreparedXA = 64

const (
	// keptBytes bounds the memory that rows of prepared transactions take. What goes beyond it is read again.
	keptBytes = 16 << 20
	// columnBytes is what a value takes beside its text, roughly.
	columnBytes = 48
	// longPrepared is how old a prepared transaction may become before the operator is told, and after which he is told again.
	longPrepared = 10 * time.Minute
)

// prepared is a transaction whose XA COMMIT, or XA ROLLBACK, is still to come.
type prepared struct {
	xid    string
	gtid   gtid
	since  time.Time
	before *tracker      // the place behind the transaction that precedes it
	place  uint64        // where it begins in before's file; 0 where the log does not say
	tables []cdc.TableID // those of ours that it changes
	losses losses        // what of it cannot be read

	kept  []*cdc.RowChange
	bytes int
	again bool // kept is not all of it, and it has to be read again
}

// takes notes that rows of a table come, and reports whether they are to be decoded.
func (p *prepared) takes(id cdc.TableID) bool {
	if !slices.Contains(p.tables, id) {
		p.tables = append(p.tables, id)
	}
	return !p.again
}

// prepareds are all of them, by xid, in the order of the log.
type prepareds struct {
	list     []*prepared
	bytes    int
	reminded time.Time
}

func newPrepareds() *prepareds { return &prepareds{} }

// keep adds a change, or gives up keeping this transaction's.
func (x *prepareds) keep(p *prepared, c *cdc.RowChange, size int) {
	if p.again {
		return
	}
	size += columnBytes * (len(c.Before) + len(c.After))
	if x.bytes+size > keptBytes {
		x.forget(p)
		p.again = true
		return
	}
	p.kept = append(p.kept, c.Clone())
	p.bytes += size
	x.bytes += size
}

// forget drops the kept changes.
func (x *prepareds) forget(p *prepared) {
	x.bytes -= p.bytes
	p.kept, p.bytes = nil, 0
}

func (x *prepareds) oldest() *prepared {
	if len(x.list) == 0 {
		return nil
	}
	return x.list[0]
}

// take removes a transaction; nil where it is not known.
func (x *prepareds) take(xid string) *prepared {
	for i, p := range x.list {
		if p.xid == xid {
			x.list = slices.Delete(x.list, i, i+1)
			return p
		}
	}
	return nil
}

// remind tells of transactions that are prepared for long. They hold locks on the server, and the position here.
func (x *prepareds) remind(log *slog.Logger) {
	p := x.oldest()
	if p == nil || time.Since(p.since) < longPrepared || time.Since(x.reminded) < longPrepared {
		return
	}
	x.reminded = time.Now()
	log.Warn("an XA transaction is prepared for long: after a restart the log is read again from there", "xid", p.xid, "gtid", p.gtid.text(),
		"age", time.Since(p.since).Round(time.Second), "prepared", len(x.list), "hint", "XA RECOVER; XA COMMIT or XA ROLLBACK what nobody will end")
}

// beginXA starts a group whose rows wait for a later transaction.
func (r *reader) beginXA() {
	r.tx.begun = true
	if r.xa != nil {
		r.tx.prepared = &prepared{gtid: r.tx.gtid, since: r.tx.at, before: r.track.clone(), place: r.tx.place}
	}
}

// prepare ends such a group, at an XA_PREPARE event; its body is read here.
func (r *reader) prepare(ctx context.Context, e *replication.BinlogEvent, body []byte) error {
	onePhase, xid, err := prepareEvent(body)
	if err == nil && r.again != nil && r.again.xid != xid {
		err = fmt.Errorf("in the place of the XA transaction %s there is %s", r.again.xid, xid)
	}
	if err != nil {
		return r.f.fail(err, "the source is read again from its saved position", true)
	}
	p := r.tx.prepared
	if p == nil {
		return r.end(ctx, e)
	}
	r.tx.prepared = nil
	if p.xid = xid; onePhase { // XA COMMIT … ONE PHASE: it is committed
		r.tx.ordinal = 0
		if err := r.handOver(ctx, p); err != nil {
			return err
		}
		return r.end(ctx, e)
	}
	if old := r.xa.take(xid); old != nil { // it ended without a word in the log, or its name could not be used again
		r.settled(old)
	}
	r.xa.list = append(r.xa.list, p)
	r.track.passed(&r.tx.gtid, uint64(e.Header.LogPos))
	return r.ended(ctx, e)
}

// prepareEvent reads the body of an XA_PREPARE event: whether it is one phase, and the xid as the statements write it.
func prepareEvent(body []byte) (onePhase bool, xid string, err error) {
	const head = 1 + 4 + 4 + 4
	if len(body) < head {
		return false, "", fmt.Errorf("an XA PREPARE event of %d bytes", len(body))
	}
	le := binary.LittleEndian
	format, gtrid, bqual := le.Uint32(body[1:]), uint64(le.Uint32(body[5:])), uint64(le.Uint32(body[9:]))
	if uint64(len(body)) < head+gtrid+bqual {
		return false, "", fmt.Errorf("an XA PREPARE event of %d bytes with an xid of %d", len(body), gtrid+bqual)
	}
	data := body[head:]
	return body[0] != 0, xidText(fmt.Sprintf("X'%X',X'%X',%d", data[:gtrid], data[gtrid:gtrid+bqual], format)), nil
}

// settled forgets a transaction that has ended.
func (r *reader) settled(p *prepared) {
	r.xa.forget(p)
	r.track.settled(&p.gtid)
}

// endXA handles XA COMMIT and XA ROLLBACK.
func (r *reader) endXA(ctx context.Context, e *replication.BinlogEvent, st statement) error {
	if r.xa == nil {
		return r.end(ctx, e)
	}
	p := r.xa.take(st.xid)
	switch {
	case p == nil && st.verb == verbXACommit:
		// Prepared before we began to read: its rows stand before our start, and of which tables nobody says.
		why := "XA COMMIT of a transaction that was prepared before this source was read"
		r.lost(r.tables.all(), why, "it happens once, with transactions that are prepared while a source starts anew")
	case p != nil && st.verb == verbXACommit:
		if err := r.handOver(ctx, p); err != nil {
			return err
		}
	}
	if p != nil {
		r.settled(p)
	}
	return r.end(ctx, e)
}

// handOver hands over the rows of a prepared transaction as those of the present one, which commits it.
func (r *reader) handOver(ctx context.Context, p *prepared) error {
	for _, x := range p.losses.list {
		r.lost(x.Tables, x.Why, x.Hint)
	}
	if !p.again {
		for _, c := range p.kept {
			if err := r.out.Change(ctx, r.committed(c)); err != nil {
				return err
			}
		}
		return nil
	}
	err := r.readAgain(ctx, p)
	if errors.Is(err, cdc.ErrGap) {
		r.lost(p.tables, "the rows of an XA transaction are no longer in the log at its XA COMMIT: "+err.Error(),
			"keep the binary log for longer than a transaction may stay prepared")
		return nil
	}
	return err
}

// committed makes a change of a prepared transaction one of the present.
func (r *reader) committed(c *cdc.RowChange) *cdc.RowChange {
	c.Tx, c.CommitTime, c.Position, c.Ordinal = r.tx.text, r.tx.at, r.start, r.tx.ordinal
	r.tx.ordinal++
	return c
}

// readAgain reads the group of a prepared transaction over a second dump. The tables in it cannot have changed since: a prepared
// transaction holds their locks.
func (r *reader) readAgain(ctx context.Context, p *prepared) error {
	from := p.before.clone()
	if !r.server.maria { // by its place, which is exact; MariaDB finds it by its GTID
		from.executed, from.pos = nil, p.place
	}
	d, err := r.f.openDump(ctx, r.server, from, toLook)
	if err != nil {
		return r.f.classify(err, r.start)
	}
	defer d.close()
	h := &committing{Handler: r.out, r: r}
	again := &reader{f: r.f, server: r.server, track: from, out: h, tables: r.tables.beside(), json: r.json, again: p}
	for mine := false; !h.done; {
		e, err := d.next()
		if err != nil {
			return r.f.classify(fmt.Errorf("reading the XA transaction %s again: %w", p.xid, err), r.start)
		}
		switch ev := e.Event.(type) {
		case *replication.MariadbGTIDEvent:
			mine = ev.GTID == p.gtid.maria
		case *replication.GTIDEvent, *replication.GtidTaggedLogEvent:
			mine = true
		case *replication.RotateEvent, *replication.FormatDescriptionEvent:
		default:
			if !mine {
				continue
			}
		}
		if err := again.event(ctx, e, again.checksum); err != nil {
			return err
		}
	}
	for _, x := range again.losses.list {
		r.lost(x.Tables, x.Why, x.Hint)
	}
	return nil
}

// committing hands changes that are read again over as those of the present transaction.
type committing struct {
	cdc.Handler
	r    *reader
	done bool // the group has ended
}

func (h *committing) Change(ctx context.Context, c *cdc.RowChange) error {
	return h.Handler.Change(ctx, h.r.committed(c))
}

func (h *committing) Lost(context.Context, cdc.Loss) error { return nil } // of statements: noted when it was prepared

func (h *committing) Committed(context.Context, cdc.Position, time.Time) error {
	h.done = true
	return nil
}
