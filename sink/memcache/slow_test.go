package memcache

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

// stopwatch keeps the longest time that a delete took.
type stopwatch struct {
	mu   sync.Mutex
	told int
	most time.Duration
}

// lap is the Waiter of one delete.
type lap struct {
	of    *stopwatch
	began time.Time
}

func (l lap) Acked(_ sink.Copy, err error) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.told++
	if took := time.Since(l.began); err == nil && took > l.of.most {
		l.of.most = took
	}
}

// A node that takes 100 ms for each answer stays on, and no other node's delete waits for it: not in the lane, for the room of all, nor for a
// sender.
func TestH5_ASlowNodeSlowsNoOther(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		const nodes, answer, slowAnswer = 8, time.Millisecond, 100 * time.Millisecond
		var slow, others stopwatch
		for n := range nodes {
			w.set(fmt.Sprintf("n%d:1", n), func(wn *wireNode) {
				if wn.delay = answer; n == 0 {
					wn.delay = slowAnswer
				}
			})
		}
		sent := 0
		for began := time.Now(); time.Since(began) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
			for range 25 * nodes {
				watch := &others
				if sent%nodes == 0 {
					watch = &slow
				}
				mustDelete(t, c, sink.Live, fmt.Sprintf("n%d:1", sent%nodes), fmt.Sprint("key", sent), lap{watch, time.Now()})
				sent++
			}
		}
		time.Sleep(2 * slowAnswer)
		synctest.Wait()
		if slow.told+others.told != sent || slow.most > 3*slowAnswer || len(turns()) > 0 {
			t.Errorf("%d of %d deletes were told, the slow node's in at most %s, turns %v", slow.told+others.told, sent, slow.most, turns())
		}
		if others.most > 3*answer {
			t.Errorf("another node's delete took %s", others.most)
		}
	})
}
