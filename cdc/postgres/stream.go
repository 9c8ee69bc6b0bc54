package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/semaphore"
)

const (
	// minStatusInterval is the least time between two status messages, however often the server asks.
	minStatusInterval = 100 * time.Millisecond

	// closeTimeout bounds saying goodbye to a server that may be gone.
	closeTimeout = 2 * time.Second

	// queueBytes bounds what has been received and not yet handed over. One message may be larger: it then waits alone.
	queueBytes = 16 << 20

	// itemBytes is what a queued message counts besides its text. It also bounds their number.
	itemBytes = 512
)

var errStreamEnded = errors.New("the server ended the stream: it is being shut down, or the slot was taken away")

// timing is how a stream is kept alive.
type timing struct {
	// status is how often the server hears of us, and of what it may forget. Each time it is asked to answer, which is how an
	// idle source's position moves on and a dead server is noticed.
	status time.Duration

	// silence is how long either side may be silent before the other gives the connection up. It is set as our session's
	// wal_sender_timeout: a server busy with transactions that are not ours speaks after half of it at the latest.
	silence time.Duration

	look  time.Duration // how often the catalogue is looked at
	gauge time.Duration // how often it is looked what the slot costs
}

var defaultTiming = timing{status: 2 * time.Second, silence: 30 * time.Second, look: time.Minute, gauge: 5 * time.Second}

// item is one message of the stream, or the server's word that its log has moved on to end.
type item struct {
	message string
	end     lsn
	at      time.Time
}

func (i item) size() int64 { return int64(min(len(i.message)+itemBytes, queueBytes)) }

// queue lies between the receiver and the Handler. Room is taken before an item is sent, so that sending never blocks.
type queue struct {
	items chan item
	room  *semaphore.Weighted
}

func newQueue() *queue {
	return &queue{items: make(chan item, queueBytes/itemBytes), room: semaphore.NewWeighted(queueBytes)}
}

func (q *queue) done(it item) { q.room.Release(it.size()) }

// stream is a replication connection that streams. It belongs to the receiver's goroutine.
//
// The connection is taken out of pgconn's hands: pgconn would start a goroutine a read for a context that can end, and one
// of its own for a connection that broke. So reads end by a deadline: that of the next status message.
type stream struct {
	conn     *pgconn.HijackedConn
	status   *pgconn.PgConn // only for pglogrepl's status message, which asks it for conn.Frontend
	timing   timing
	flushed  func() lsn // what the server may forget; zero would mean "as far as received" to pglogrepl
	received lsn

	lastStatus, nextStatus time.Time
}

// receive reads the stream into q until ctx ends (nil) or the connection does. While q is full it reads nothing and the
// server waits, but status messages go on, so that a slow Handler costs no connection.
func (st *stream) receive(ctx context.Context, q *queue) error {
	// A deadline in the past is set after ctx.Err() is, and the loop looks at ctx.Err() after it has set one: whichever came
	// first, the read ends.
	defer context.AfterFunc(ctx, func() { _ = st.conn.Conn.SetReadDeadline(time.Unix(1, 0)) })()
	heard := time.Now()
	for {
		if !time.Now().Before(st.nextStatus) {
			if err := st.sendStatus(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return st.sendStatus() // what was confirmed last need not come again
		}
		msg, err := st.conn.Frontend.Receive()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			if ctx.Err() == nil && time.Since(heard) > st.timing.silence {
				return fmt.Errorf("the server has been silent for %v", st.timing.silence)
			}
			continue
		}
		if err != nil {
			return during("reading the stream", err)
		}
		it, ok, err := st.read(msg)
		if err != nil {
			return err
		}
		if ok {
			if err := st.put(ctx, q, it); err != nil {
				return err
			}
		}
		heard = time.Now()
	}
}

// close says goodbye, so that the slot is free at once.
func (st *stream) close() {
	_ = st.conn.Conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	st.conn.Frontend.Send(&pgproto3.Terminate{})
	_ = st.conn.Frontend.Flush()
	_ = st.conn.Conn.Close()
}

// read makes an item of what the server sent, where it is one.
func (st *stream) read(msg pgproto3.BackendMessage) (it item, ok bool, err error) {
	switch msg := msg.(type) {
	case *pgproto3.CopyData:
		return st.readCopy(msg.Data)
	case *pgproto3.ErrorResponse:
		return it, false, during("reading the stream", pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.CopyDone, *pgproto3.CommandComplete:
		return it, false, errStreamEnded
	}
	return it, false, nil
}

func (st *stream) readCopy(data []byte) (it item, ok bool, err error) {
	if len(data) == 0 {
		return it, false, during("reading the stream", errShortMessage)
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return it, false, during("reading a keepalive", err)
		}
		if k.ReplyRequested { // a server that shuts down asks again with every answer
			st.due(st.lastStatus.Add(minStatusInterval))
		}
		st.received = max(st.received, k.ServerWALEnd)
		return item{end: k.ServerWALEnd, at: k.ServerTime.UTC()}, true, nil
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return it, false, during("reading the stream", err)
		}
		st.received = max(st.received, x.WALStart)
		return item{message: string(x.WALData)}, len(x.WALData) > 0, nil
	}
	return it, false, nil
}

// put waits for room, and keeps the connection alive meanwhile.
func (st *stream) put(ctx context.Context, q *queue, it item) error {
	for !q.room.TryAcquire(it.size()) {
		wait, cancel := context.WithDeadline(ctx, st.nextStatus)
		err := q.room.Acquire(wait, it.size())
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := st.sendStatus(); err != nil {
			return err
		}
	}
	q.items <- it
	return nil
}

// sendStatus tells the server what it may forget, and asks for an answer.
func (st *stream) sendStatus() error {
	st.lastStatus = time.Now()
	flushed := st.flushed()
	_ = st.conn.Conn.SetWriteDeadline(st.lastStatus.Add(st.timing.silence))
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), st.status, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: max(st.received, flushed),
		WALFlushPosition: flushed,
		WALApplyPosition: flushed,
		ReplyRequested:   true,
	})
	st.due(st.lastStatus.Add(st.timing.status))
	return during("sending a status", err)
}

// due sets when the next status message is sent, at which reads end.
func (st *stream) due(at time.Time) {
	st.nextStatus = at
	_ = st.conn.Conn.SetReadDeadline(at)
}
