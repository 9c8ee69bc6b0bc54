//go:build bench

package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

const (
	clientConns  = 8                    // of a node with four threads
	clientEvery  = 2 * time.Millisecond // each connection asks for a key
	clientSteady = 5000                 // answers, before a flush is asked for
)

// clients ask a node for its keys all the time, on connections on each of its threads, and note how long each answer takes.
type clients struct {
	end func()

	mu      sync.Mutex // guards what follows
	answers []answer
	failed  error
}

type answer struct {
	asked time.Time
	took  time.Duration
}

// newClients begin. keyOf is the i-th key.
func newClients(t *testing.T, node *harness.Node, keyOf func(i int) string) *clients {
	t.Helper()
	c := &clients{}
	var stops []func()
	for n := range clientConns {
		conn, err := net.Dial("tcp", node.Addr)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, background(func(ctx context.Context) {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := c.ask(ctx, conn, n, keyOf); err != nil && ctx.Err() == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failed = err
			}
		}))
	}
	c.end = sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
	})
	t.Cleanup(c.end)
	return c
}

// ask asks on one connection, for every so many-th key, until ctx ends.
func (c *clients) ask(ctx context.Context, conn net.Conn, n int, keyOf func(i int) string) error {
	in, tick := bufio.NewReader(conn), time.NewTicker(clientEvery)
	defer tick.Stop()
	for i := n; ; i += 7919 * clientConns {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		began := time.Now()
		if _, err := fmt.Fprintf(conn, "mg %s s\r\n", keyOf(i)); err != nil {
			return err
		}
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
		c.note(answer{began, time.Since(began)})
	}
}

func (c *clients) note(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, a)
}

// awaitSteady waits until they have had some answers.
func (c *clients) awaitSteady(t *testing.T) {
	t.Helper()
	harness.AwaitQuick(t, "clients to be answered", func() (bool, string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.answers) >= clientSteady || c.failed != nil, fmt.Sprint(len(c.answers))
	})
}

// slowest is the longest that an answer took any part of which was waited for between two times, in milliseconds.
func (c *clients) slowest(t *testing.T, from, to time.Time) (ms float64) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		t.Fatalf("a client of the node: %v: nothing was measured", c.failed)
	}
	n := 0
	for _, a := range c.answers {
		if a.asked.Before(to) && a.asked.Add(a.took).After(from) {
			n++
			ms = max(ms, float64(a.took)/float64(time.Millisecond))
		}
	}
	if n == 0 {
		t.Fatal("no client of the node was answered: nothing was measured")
	}
	return ms
}
