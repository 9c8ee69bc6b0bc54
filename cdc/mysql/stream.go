package mysql

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"golang.org/x/sync/semaphore"
)

const (
	// queueBytes bounds the events that were read and not yet handled. One event may exceed it, and then waits alone.
	queueBytes = 8 << 20
	// queueEvents bounds their number: enough that reader and handler seldom wait for each other.
	queueEvents = 256
)

// stream is one binlog dump. The driver reads in a goroutine of its own and puts events into a queue; one goroutine of ours
// waits for the driver's end. close ends both.
type stream struct {
	syncer *replication.BinlogSyncer
	events chan *replication.BinlogEvent // closed at the driver's end, when err is set
	room   *semaphore.Weighted
	err    error

	ctx    context.Context // of this dump; the driver's callbacks have none
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// openStream starts the dump behind the tracker's place.
func (f *Feeder) openStream(ctx context.Context, srv *server, at *tracker) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{ctx: ctx, cancel: cancel, room: semaphore.NewWeighted(queueBytes),
		events: make(chan *replication.BinlogEvent, queueEvents)}
	s.syncer = replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: f.cfg.ServerID, Flavor: srv.flavor(), Host: srv.addr, User: f.cfg.User, Password: f.cfg.Password,
		TLSConfig:               f.tlsFor(srv.addr),
		Dialer:                  s.dial,
		Option:                  patience,
		HeartbeatPeriod:         heartbeatPeriod,
		DisableRetrySync:        true, // resuming is ours: from what was handed over, not from what was read
		DiscardGTIDSet:          true,
		VerifyChecksum:          true,
		RowsEventDecodeFunc:     keepRows,
		SynchronousEventHandler: s,
		EventCacheCount:         1, // unused beside a synchronous handler
		Logger:                  slog.New(slog.DiscardHandler),
	})
	streamer, err := s.start(at)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("starting the binlog dump: %w", err)
	}
	s.wait.Go(func() {
		_, s.err = streamer.GetEvent(ctx)
		if ctx.Err() == nil {
			close(s.events) // the driver's goroutine has ended: nobody sends any more
		}
	})
	return s, nil
}

func (s *stream) start(at *tracker) (*replication.BinlogStreamer, error) {
	set, err := at.startSet()
	if err != nil {
		return nil, err
	}
	if set != nil {
		return s.syncer.StartSyncGTID(set)
	}
	return s.syncer.StartSync(mysql.Position{Name: at.file, Pos: uint32(at.pos)})
}

// patience tells the server to bear with a reader that is held back.
func patience(c *client.Conn) error {
	_, err := c.Execute(fmt.Sprintf("SET SESSION net_write_timeout = %d", int(netWriteTimeout.Seconds())))
	return err
}

// dial opens the dump's connection, which is cut when the stream ends: a blocked read returns at once. The driver's own
// farewell, a second connection that kills the first, is thereby refused: the server notices at its next heartbeat, and a
// thread number that is out of date kills nobody else.
func (s *stream) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(s.ctx, func() { nc.Close() })
	return &timedConn{Conn: nc}, nil
}

// close ends the dump and waits for its goroutines.
func (s *stream) close() {
	s.cancel()
	s.syncer.Close()
	s.wait.Wait()
}

// HandleEvent takes an event from the driver's goroutine and waits until there is room for it.
func (s *stream) HandleEvent(e *replication.BinlogEvent) error {
	if err := s.room.Acquire(s.ctx, weight(e)); err != nil {
		return err
	}
	select {
	case s.events <- e:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// next waits for an event. The caller gives its room back with done.
func (s *stream) next(ctx context.Context) (*replication.BinlogEvent, error) {
	select {
	case e, ok := <-s.events:
		if !ok {
			return nil, fmt.Errorf("reading the binary log: %w", s.err)
		}
		return e, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *stream) done(e *replication.BinlogEvent) { s.room.Release(weight(e)) }

// weight is what an event holds in memory, roughly: a compressed transaction is there twice.
func weight(e *replication.BinlogEvent) int64 {
	n := int64(len(e.RawData))
	if p, ok := e.Event.(*replication.TransactionPayloadEvent); ok {
		n += int64(p.UncompressedSize)
	}
	return min(n, queueBytes)
}

// undecoded is the body of a rows event, kept in place of its rows until it is known whether anybody wants them.
type undecoded []byte

// keepRows reads a rows event's header only.
func keepRows(e *replication.RowsEvent, data []byte) error {
	pos, err := e.DecodeHeader(data)
	if isDummyTable(e.TableID) {
		return nil
	}
	if err != nil {
		return err
	}
	e.Rows = [][]any{{undecoded(data[pos:])}}
	return nil
}

// isDummyTable: a rows event without a table ends a statement that changed nothing.
func isDummyTable(id uint64) bool { return id == 0xffffff || id == 0xffffffffffff }
