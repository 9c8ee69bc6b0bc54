package mysql

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-mysql-org/go-mysql/replication"
	"golang.org/x/sync/semaphore"
)

const (
	// queueBytes bounds the events that were read and not yet handled. One event may exceed it, and then waits alone.
	queueBytes = 8 << 20
	// queueEvents bounds their number: enough that reader and handler seldom wait for each other.
	queueEvents = 256
)

// stream is a dump with a goroutine of ours that reads it ahead into a queue. close ends both.
type stream struct {
	dump   *dump
	events chan *replication.BinlogEvent // closed at the dump's end, when err is set
	room   *semaphore.Weighted
	err    error

	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// openStream starts the dump behind the tracker's place.
func (f *Feeder) openStream(ctx context.Context, srv *server, at *tracker) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	d, err := f.openDump(ctx, srv, at, toFeed)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{dump: d, cancel: cancel, room: semaphore.NewWeighted(queueBytes), events: make(chan *replication.BinlogEvent, queueEvents)}
	s.wait.Go(func() {
		s.err = s.fill(ctx)
		close(s.events)
	})
	return s, nil
}

// fill puts events into the queue until the dump ends, which is always an error.
func (s *stream) fill(ctx context.Context) error {
	for {
		e, err := s.dump.next()
		if err != nil {
			return err
		}
		if err := s.room.Acquire(ctx, weight(e)); err != nil {
			return err
		}
		select {
		case s.events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close ends the dump and waits for its goroutine, whose read the cut connection ends. The server notices at its next heartbeat.
func (s *stream) close() {
	s.cancel()
	s.wait.Wait()
	s.dump.close()
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
