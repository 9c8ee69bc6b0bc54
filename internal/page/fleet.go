package page

import (
	"context"
	"sync"
	"time"

	"invalidator/internal/app"
)

// FleetReader gives what the topics say of the fleet, one look at a time: *app.FleetReader.
type FleetReader interface {
	Read(ctx context.Context) (app.Fleet, error)
	Close()
}

const (
	lookEvery   = time.Second      // between two looks, whoever asks
	lookTimeout = 10 * time.Second // of one
	idleAfter   = time.Minute      // that nobody looked: the reader is closed
)

// looks are looks at the fleet, shared by all who ask.
type looks struct {
	open func(ctx context.Context) (FleetReader, error)

	turn   chan struct{} // 1: who has it looks
	reader FleetReader   // nil: it is not open
	idle   *time.Timer   // closes it

	mu   sync.Mutex
	last look
}

// look is one at the fleet.
type look struct {
	app.Fleet
	at  time.Time
	err error
}

func newLooks(open func(ctx context.Context) (FleetReader, error)) *looks {
	return &looks{open: open, turn: make(chan struct{}, 1)}
}

// now is a look that is no older than lookEvery. Its err is one that failed, with what the last good one said.
func (l *looks) now(ctx context.Context) look {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return look{at: time.Now(), err: ctx.Err()}
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if time.Since(last.at) < lookEvery {
		return last
	}
	// It is everybody's: who asked may be gone before it is done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	fleet, err := l.read(ctx)
	if err != nil {
		fleet = last.Fleet
	}
	last = look{fleet, time.Now(), err}
	l.mu.Lock()
	l.last = last
	l.mu.Unlock()
	return last
}

// read is called by who has the turn.
func (l *looks) read(ctx context.Context) (app.Fleet, error) {
	if l.reader == nil {
		r, err := l.open(ctx)
		if err != nil {
			return app.Fleet{}, err
		}
		l.reader = r
		l.idle = time.AfterFunc(idleAfter, l.close)
	}
	l.idle.Reset(idleAfter)
	return l.reader.Read(ctx)
}

// close lets go of the reader; the next look opens another.
func (l *looks) close() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.reader != nil {
		l.idle.Stop()
		l.reader.Close()
		l.reader = nil
	}
}
