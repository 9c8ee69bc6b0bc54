package memcache

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// owes deletes a key until it is told: where the node is off, again when it is back.
func owes(t *testing.T, c *Client, l sink.Lane, node, key string) error {
	t.Helper()
	for {
		told := make(acks, 1)
		err := c.Delete(t.Context(), l, sink.Copy{Node: node, Key: key}, told)
		if err == nil {
			select {
			case got := <-told:
				err = got.err
			case <-time.After(10 * time.Minute):
				t.Fatal("nobody was told in ten minutes")
			}
		}
		if !errors.As(err, new(*sink.OffError)) {
			return err
		}
		back := make(acks, 1)
		c.Probe(node, back)
		<-back
	}
}

// otherKeys deletes other keys for as long, one each 20 ms.
func otherKeys(t *testing.T, c *Client, node string, d time.Duration) {
	for i := range int(d / (20 * time.Millisecond)) {
		c.Delete(t.Context(), sink.Live, sink.Copy{Node: node, Key: fmt.Sprint("other", i)}, dropped{}) // it may be off
		time.Sleep(20 * time.Millisecond)
	}
}

// In lane Live such a key takes the node off until then; in others it is tried on, and holds up who waits for it.
func TestH7_OneKeyThatAlwaysFailsIsRefused(t *testing.T) {
	for l := range sink.Lanes {
		t.Run(sink.Lane(l).String(), func(t *testing.T) { alwaysFails(t, sink.Lane(l)) })
	}
}

func alwaysFails(t *testing.T, l sink.Lane) {
	const line = "SERVER_ERROR Invalid argument"
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		w.set("n:1", func(n *wireNode) { n.errs = lines{"bad": line} })
		go otherKeys(t, c, "n:1", 20*time.Minute)
		began := time.Now()
		wantRefused := func() {
			t.Helper()
			var refused *sink.RefusedError
			if err := owes(t, c, l, "n:1", "bad"); !errors.As(err, &refused) || refused.Answer != line || refused.Copy != (sink.Copy{Node: "n:1", Key: "bad"}) {
				t.Fatalf("told %v", err)
			}
		}
		wantRefused()
		if took := time.Since(began); took < refuseAfter || took > 3*refuseAfter {
			t.Errorf("it was refused after %s", took)
		}
		offs := len(turns())
		if l == sink.Live && offs == 0 || offs > 12 {
			t.Errorf("turns until then: %v", turns())
		}
		for range 30 { // the next are at once, and take the node off no more
			time.Sleep(10 * time.Second)
			began := time.Now()
			wantRefused()
			if took := time.Since(began); took > time.Second {
				t.Errorf("refused again after %s", took)
			}
		}
		if got := turns(); len(got) != offs {
			t.Errorf("turns since: %v", got[offs:])
		}
		w.set("n:1", func(n *wireNode) { n.errs = nil })
		if err := owes(t, c, l, "n:1", "bad"); err != nil {
			t.Error(err)
		}
		w.set("n:1", func(n *wireNode) { n.errs = lines{"bad": line} })
		began = time.Now()
		if wantRefused(); time.Since(began) < refuseAfter {
			t.Error("it was deleted meanwhile, and refused at once")
		}
		time.Sleep(20 * time.Minute)
	})
}

// The same on a wire: it is the key that the answer was for, in both protocols.
func TestH7_OneKeyIsRefusedOnTheWire(t *testing.T) {
	const line = "SERVER_ERROR Invalid argument"
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		keys := fill(node, 20)
		node.Intercept(func(_ int, got string) memcachetest.Reply {
			if strings.Contains(got, "user:7") {
				return memcachetest.Reply{Text: line + "\r\n", Then: memcachetest.Skip}
			}
			return memcachetest.Reply{}
		})
		c, logged := start(t, opts)
		w := deleteAll(t, c, node.Addr(), keys)
		for range len(keys) - 1 {
			if got := w.next(t); got.err != nil || got.Key == "user:7" {
				t.Fatalf("%s: %v", got.Key, got.err)
			}
		}
		n := c.node(node.Addr())
		eventually(t, "it is a suspect", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.mu.suspects.list) != 1 {
				return false
			}
			s := &n.mu.suspects.list[0]
			s.first, s.times = s.first.Add(-refuseAfter), refuseTimes // as if it had been for that long
			return s.key == "user:7"
		})
		var refused *sink.RefusedError
		if got := w.next(t); !errors.As(got.err, &refused) || got.Key != "user:7" || refused.Answer != line {
			t.Errorf("%s: %v", got.Key, got.err)
		}
		if st := c.Nodes()[0]; !st.On || st.Queued != 0 || logged.Count("it is refused until") != 1 {
			t.Errorf("state %+v\n%s", st, logged)
		}
	})
}

// What is not the key's own trouble refuses none, however long it takes: the node goes off, and is owed.
func TestH7_NoKeyIsRefusedForTheNodesTrouble(t *testing.T) {
	const line = "SERVER_ERROR Invalid argument"
	some := lines{}
	for i := range maxSuspects + 1 {
		some[fmt.Sprint("bad", i)] = line
	}
	for name, tc := range map[string]struct {
		errs   lines
		others bool
	}{
		"it has no memory":          {lines{"bad0": "SERVER_ERROR out of memory"}, true},
		"no server behind it":       {lines{"bad0": "SERVER_ERROR Connection refused"}, true},
		"another proxy's words":     {lines{"bad0": "SERVER_ERROR backend failure"}, true},
		"no SERVER_ERROR":           {lines{"bad0": "ERROR"}, true},
		"many keys":                 {some, true},
		"nothing else is asked for": {lines{"bad0": line}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
				w.set("n:1", func(n *wireNode) { n.errs = tc.errs })
				if tc.others {
					go otherKeys(t, c, "n:1", 20*time.Minute)
				}
				ended := make(chan error, len(tc.errs))
				for key := range tc.errs {
					go func() { ended <- owes(t, c, sink.Live, "n:1", key) }()
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if len(ended) > 0 || len(turns()) < 10 {
					t.Fatalf("%d of %d keys were told, turns %v", len(ended), len(tc.errs), turns())
				}
				w.set("n:1", func(n *wireNode) { n.errs = nil })
				for range tc.errs {
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
				time.Sleep(11 * time.Minute)
			})
		})
	}
}

// A quiet batch's error line names no key: one that was refused before is not refused for another's.
func TestH7_AnotherKeysErrorRefusesNone(t *testing.T) {
	bubble(t, Options{ConnsPerNode: 1}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		w.set("n:1", func(n *wireNode) {
			n.delay, n.errs = 10*time.Millisecond, lines{"bad": "SERVER_ERROR Invalid argument"}
		})
		mustDelete(t, c, sink.Live, "n:1", "first", dropped{})
		n := c.node("n:1")
		n.mu.Lock()
		n.mu.suspects.list = []suspect{{key: "mended", latest: time.Now(), refused: true}}
		n.mu.Unlock()
		time.Sleep(time.Millisecond) // it is on the socket, and so these go together
		mended := make(acks, 1)
		mustDelete(t, c, sink.Live, "n:1", "mended", mended)
		mustDelete(t, c, sink.Live, "n:1", "bad", dropped{})
		mended.want(t, 1)
	})
}

func TestSuspects(t *testing.T) {
	const line = "SERVER_ERROR Invalid argument"
	now := time.Now()
	var s suspects
	others := func() { s.succeeded([]entry{{key: "other"}}) }
	fails := func(key string, times int, every time.Duration, each func()) (refused bool) {
		for range times {
			each()
			now = now.Add(every)
			refused, _ = s.failed(key, line, now)
		}
		return refused
	}
	if fails("a", 1000, time.Second, func() {}) {
		t.Error("refused, though nothing else succeeded")
	}
	if !fails("a", 15, time.Second, others) { // they have failed for long
		t.Error("not refused")
	}
	if fails("b", refuseTimes+5, time.Second, others) {
		t.Error("b was refused too early")
	}
	if !fails("b", 20, time.Second, others) {
		t.Error("b was not refused")
	}
	if fails("c", refuseTimes-2, time.Minute, others) {
		t.Error("c was refused after too few answers")
	}
	if refused, first := s.failed("b", line, now); !refused || first {
		t.Errorf("b again: refused %v, for the first time %v", refused, first)
	}
	if refused, _ := s.failed("b", "SERVER_ERROR out of memory", now); refused {
		t.Error("b was refused for want of memory")
	}
	s.succeeded([]entry{{key: "b"}})
	if refused, _ := s.failed("b", line, now); refused {
		t.Error("b was refused, though it was deleted")
	}
	for i := range maxSuspects { // a, b, c, and too many
		s.failed(fmt.Sprint("more", i), line, now)
	}
	if fails("a", 20, time.Second, others) {
		t.Error("a was refused while many keys fail")
	}
	if !fails("a", 60, time.Second, others) {
		t.Error("a was not refused when they no longer did")
	}
	now = now.Add(forgetsAfter)
	if fails("a", 1, time.Second, others) || len(s.list) != 1 {
		t.Errorf("a was not forgotten: %+v", s.list)
	}
}

// gomemcache shows the node's line only as text.
func TestH7_AClassicAnswerIsKnown(t *testing.T) {
	for text, want := range map[string]string{
		`memcache: unexpected response line: "SERVER_ERROR a \"b\"\r\n"`: `SERVER_ERROR a "b"`,
		`memcache: unexpected response line: "half`:                      "",
		"read: connection reset by peer":                                 "",
	} {
		if got, ok := answerIn(errors.New(text)); ok && got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", text, got, ok)
		}
	}
}

func TestNodesTrouble(t *testing.T) {
	for _, why := range []string{"out of memory", "Connection timed out", "Host is down", "Broken pipe", "backend failure", "shutting down"} {
		if !isNodesTrouble(strings.ToUpper(why)) {
			t.Errorf("%q is taken for the key's own", why)
		}
	}
	if isNodesTrouble("Invalid argument") {
		t.Error("it is taken for the node's")
	}
}
