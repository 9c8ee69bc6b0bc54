package memcache

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

func nobody(string) bool    { return false }
func everybody(string) bool { return true }

// A node that left every ring while it was off is not tried again, and who waits for it is told; when it is named again it is, and answers whoever
// asks then.
func TestANodeThatNobodyNamesIsNotTried(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		w.set("n:1", func(n *wireNode) { n.refuse = true })
		mustDelete(t, c, sink.Live, "n:1", "k", dropped{})
		time.Sleep(time.Minute)
		probed := make(acks, 10)
		c.Probe("n:1", probed)
		synctest.Wait()
		probed.none(t)

		c.Retain(nobody)
		time.Sleep(stayMax)
		synctest.Wait()
		checkOff(t, probed.next(t).err, "n:1", "no ring record names it")
		tries := w.get("n:1").tries
		w.set("n:1", func(n *wireNode) { n.refuse = false })
		checkOff(t, c.Delete(t.Context(), sink.Live, sink.Copy{Node: "n:1", Key: "k"}, probed), "n:1", "")
		c.Probe("n:1", probed) // by a worker that has yet to see the ring without it
		time.Sleep(time.Hour)
		if synctest.Wait(); w.get("n:1").tries != tries || len(turns()) != 1 {
			t.Errorf("it was tried %d times more; turns %v", w.get("n:1").tries-tries, turns())
		}
		if probed.none(t); len(c.Nodes()) != 0 {
			t.Errorf("it is told of: %+v", c.Nodes())
		}
		c.Retain(nobody)
		synctest.Wait()
		checkOff(t, probed.next(t).err, "n:1", "no ring record names it")

		c.Probe("n:1", probed)
		c.Retain(everybody)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if probed.want(t, 1); len(turns()) != 2 || !c.Nodes()[0].On {
			t.Errorf("turns %v", turns())
		}
		deleteAll(t, c, "n:1", []string{"k"}).want(t, 1)
	})
}

// Of a node that is on the connections are closed, and nothing is asked of it but deletes: a worker may have the ring that named it still.
func TestANodeThatNobodyNamesRests(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		deleteAll(t, c, "mc1.test:1", []string{"k"}).want(t, 1)
		c.Retain(nobody)
		time.Sleep(watchEvery + time.Millisecond)
		rests := func() wireNode {
			t.Helper()
			synctest.Wait()
			n := w.get("mc1.test:1")
			if n.open != 0 {
				t.Errorf("%d connections are open", n.open)
			}
			return n
		}
		before := rests()
		time.Sleep(time.Hour)
		if now := rests(); now.tries != before.tries || now.asked != before.asked || len(c.Nodes()) != 0 {
			t.Errorf("in an hour it was connected to %d times, and asked %d times", now.tries-before.tries, now.asked-before.asked)
		}
		for l := range sink.Lanes {
			deleteIn(t, c, sink.Lane(l), "mc1.test:1", []string{"k", "k2"}).want(t, 2)
			time.Sleep(2 * watchEvery)
			rests()
		}
		probed := make(acks, 1)
		c.Probe("mc1.test:1", probed)
		probed.want(t, 1)
		time.Sleep(2 * watchEvery)
		rests()

		c.Retain(everybody)
		deleteAll(t, c, "mc1.test:1", []string{"k"}).want(t, 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := w.get("mc1.test:1"); n.open == 0 || len(turns()) > 0 || len(c.Nodes()) != 1 {
			t.Errorf("named again, it has %d connections; turns %v", n.open, turns())
		}
	})
}

// One that dies when nobody names it goes off with what was asked of it, as any other.
func TestANodeThatNobodyNamesGoesOff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		c.Probe("n:1", make(acks, 1))
		c.Retain(nobody)
		time.Sleep(time.Minute)
		w.set("n:1", func(n *wireNode) { n.dead = true })
		told, probed := make(acks, 10), make(acks, 10)
		mustDelete(t, c, sink.Debts, "n:1", "k", told)
		c.Probe("n:1", probed)
		if st := c.Nodes(); len(st) != 1 || st[0].Queued != 1 {
			t.Errorf("it holds a delete: %+v", st)
		}
		time.Sleep(lag + watchEvery)
		synctest.Wait()
		told.wantOff(t, 1, "it has answered nothing for 2s")
		probed.wantOff(t, 1, "no ring record names it")
		if len(turns()) != 1 {
			t.Errorf("turns %v", turns())
		}
	})
}

// What a sender has just taken when its node is found to be of no use is sent again.
func TestADeleteThatRacesWithRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(wire)
		n := w.client(Options{ConnsPerNode: 1, MaxLag: time.Hour}).newNode("n:1")
		told := make(acks, 10)
		pushOne(t, n, "k", told)
		var b batch
		if !n.take(0, &b, batchKeys, batchBytes, false) {
			t.Fatal("nothing was taken")
		}
		n.retain(false)
		if n.useless() {
			t.Error("it is of no use, and a sender holds a delete")
		}
		if !n.rest(t.Context()) {
			t.Fatal("the context has ended")
		}
		var again batch
		if !n.take(0, &again, batchKeys, batchBytes, false) || len(again.entries) != 1 || again.entries[0].key != "k" {
			t.Fatalf("taken again: %+v", again.entries)
		}
	})
}

// Run ends whatever its nodes wait for.
func TestRunEndsForNodesThatNobodyNames(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		w.set("off:1", func(n *wireNode) { n.refuse = true })
		for _, node := range []string{"off:1", "on:1"} {
			mustDelete(t, c, sink.Live, node, "k", dropped{})
		}
		time.Sleep(time.Minute)
		c.Retain(nobody)
		time.Sleep(time.Minute)
		if err := c.Delete(t.Context(), sink.Live, sink.Copy{Node: "off:1", Key: "k"}, dropped{}); !errors.As(err, new(*sink.OffError)) {
			t.Error(err)
		}
	})
}
