package changelog_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"invalidator/internal/changelog"
)

// line is a member's way to the brokers.
type line struct {
	dial  func(ctx context.Context, network, host string) (net.Conn, error)
	state *changelog.StateStore

	mu     sync.Mutex
	conns  []net.Conn
	dead   bool
	frozen chan struct{} // closed by thaw; nil: it flows
}

func (g *groupRig) line(t *testing.T) *line {
	l := &line{dial: g.cluster.Options.Dial}
	o := g.cluster.Options
	o.Dial = l.Dial
	var err error
	if l.state, err = changelog.OpenState(o, g.cluster.Names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.state.Close)
	return l
}

// on makes a member use it.
func (l *line) on(o *changelog.GroupOptions) { o.Dial, o.State = l.Dial, l.state }

func (l *line) Dial(ctx context.Context, network, host string) (net.Conn, error) {
	c, err := l.dial(ctx, network, host)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		c.Close()
		return nil, errors.New("cut")
	}
	l.conns = append(l.conns, c)
	return &lineConn{c, l}, nil
}

// cut ends it for good: for the brokers the process has died.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, c := range l.conns {
		c.Close()
	}
}

func (l *line) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// freeze keeps what is written until thaw: the process is stopped.
func (l *line) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = make(chan struct{})
}

func (l *line) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.frozen)
	l.frozen = nil
}

type lineConn struct {
	net.Conn
	l *line
}

func (c *lineConn) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	frozen := c.l.frozen
	c.l.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	return c.Conn.Write(b)
}

// Deadlines are not kept: a stopped process's clock stands too.
func (c *lineConn) SetWriteDeadline(time.Time) error { return nil }
