package memcache

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"invalidator/sink"
)

// drain takes everything that waits.
func drain(n *node, maxKeys int) (entries []entry) {
	var b batch
	for n.take(0, &b, maxKeys, batchBytes, false) {
		entries = append(entries, b.entries...)
		n.settle(0, len(b.entries), true)
		b.reset()
	}
	return entries
}

func TestTheSameCopyIsSentOnce(t *testing.T) {
	n := loneNode(1)
	w := make(acks, 10)
	push := func(l sink.Lane, key string, stale uint8) {
		e := newEntry(l, key, stale, w)
		if room, err := n.push(&e); room != nil || err != nil {
			t.Fatal("no room", err)
		}
	}
	push(sink.Live, "a", 0)
	push(sink.Live, "a", 30) // a mark and a delete are a delete
	push(sink.Live, "b", 30)
	push(sink.Live, "b", 0)
	push(sink.Live, "c", 30) // of two marks the shorter counts
	push(sink.Live, "c", 20)
	push(sink.Live, "c", 40)
	push(sink.Debts, "a", 0) // another lane
	size := len("a") + entrySize
	if st := n.state(); st.Queued != 8 || st.QueuedBytes != 4*size+4*joinedSize || n.client.budget.held.Load() != int64(st.QueuedBytes) {
		t.Errorf("state: %+v, %d held; an entry has %d bytes, a waiter %d", st, n.client.budget.held.Load(), size, joinedSize)
	}
	var b batch
	n.take(0, &b, 3, batchBytes, false)
	push(sink.Live, "a", 0) // the first is on a socket: it may precede a refill
	push(sink.Live, "c", 0)
	got := b.entries
	if len(got) != 3 || got[0].stale != 0 || got[1].stale != 0 || got[2].stale != 20 || got[2].deletes() != 3 {
		t.Errorf("sent: %+v", got)
	}
	for i := range got {
		got[i].tell("n", nil)
	}
	for range 7 {
		w.next(t)
	}
	n.settle(0, 3, true)
	if rest := drain(n, 10); len(rest) != 3 {
		t.Errorf("then: %+v", rest)
	}
	if st := n.state(); st.Queued != 0 || st.QueuedBytes != 0 || st.Acked != 10 || n.client.budget.held.Load() != 0 {
		t.Errorf("state in the end: %+v", st)
	}
}

// What was given back without an answer waits as itself: a delete that comes now is sent again, after it.
func TestADeleteIsNotLostToOneThatWasGivenBack(t *testing.T) {
	n := loneNode(1)
	w := make(acks, 10)
	pushOne(t, n, "a", w)
	var b batch
	n.take(0, &b, 10, batchBytes, false)
	n.giveBack(0, false)
	pushOne(t, n, "a", w)
	got := drain(n, 1)
	if len(got) != 2 || !got[0].careful || got[1].careful {
		t.Errorf("sent: %+v", got)
	}
}

// The index against a plain search, over any order of pushes and takes: whatever waits is found, and nothing that does not.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := lane{limit: 1 << 30, base: rapid.Uint32().Draw(t, "base")}
		keys := rapid.IntRange(1, 400).Draw(t, "keys")
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") {
				for range rapid.IntRange(1, 50).Draw(t, "pushes") {
					e := entry{key: fmt.Sprint(rapid.IntRange(0, keys).Draw(t, "key"))}
					waits := slices.ContainsFunc(l.queue[l.head:], func(q entry) bool { return q.key == e.key })
					before := len(l.queue) - l.head
					if l.add(&e); (len(l.queue)-l.head == before) != waits {
						t.Fatalf("key %s waits: %v; %d entries before, %d after", e.key, waits, before, len(l.queue)-l.head)
					}
				}
				continue
			}
			for range rapid.IntRange(1, 80).Draw(t, "pops") {
				if l.waits() {
					l.pop()
				}
			}
		}
	})
}

// A batch is the first lane's that waits, but for an eighth, which the others get by turns.
func TestLanesShareABatch(t *testing.T) {
	n := loneNode(1)
	fillLanes := func(each int, lanes ...sink.Lane) {
		for _, l := range lanes {
			for i := range each {
				e := newEntry(l, fmt.Sprint(l, ":", i), 0, dropped{})
				if room, err := n.push(&e); room != nil || err != nil {
					t.Fatal("no room", err)
				}
			}
		}
	}
	take := func(maxKeys int) (by [sink.Lanes]int) {
		var b batch
		n.take(0, &b, maxKeys, batchBytes, false)
		for _, e := range b.entries {
			by[e.lane]++
		}
		n.settle(0, len(b.entries), true)
		return by
	}
	fillLanes(1000, sink.Live, sink.Urgent, sink.Flush)
	want := [][sink.Lanes]int{
		{sink.Live: 70, sink.Urgent: 10}, {sink.Live: 70, sink.Flush: 10}, {sink.Live: 70, sink.Urgent: 10}, {sink.Live: 70, sink.Flush: 10},
	}
	for i, want := range want {
		if got := take(80); got != want {
			t.Errorf("batch %d: %v, want %v", i, got, want)
		}
	}
	var single [sink.Lanes]int // batches of one, as in the classic protocol
	for range 160 {
		for l, k := range take(1) {
			single[l] += k
		}
	}
	if want := [sink.Lanes]int{sink.Live: 140, sink.Urgent: 10, sink.Flush: 10}; single != want {
		t.Errorf("160 batches of one: %v, want %v", single, want)
	}
	for n.mu.lanes[sink.Live].waits() {
		take(80)
	}
	if got := take(80); got[sink.Urgent] != 70 || got[sink.Flush] != 10 {
		t.Errorf("without live deletes: %v", got)
	}
	drain(n, 1000)
	fillLanes(5, sink.Live, sink.Urgent, sink.Debts)
	if got, want := take(80), ([sink.Lanes]int{sink.Live: 5, sink.Urgent: 5, sink.Debts: 5}); got != want {
		t.Errorf("where all have room: %v", got)
	}
	fillLanes(1000, sink.Storm)
	if got := take(80); got[sink.Storm] != 80 {
		t.Errorf("of one lane alone: %v", got)
	}
}

// BenchmarkCoalescing is a delete's way into a node's queue and out of it, without a socket, as the queue of a node that has much to do
// is used: 4,096 wait. Unique keys pay for the look that finds none alike, repeated ones are not sent.
func BenchmarkCoalescing(b *testing.B) {
	for _, bc := range []struct {
		name   string
		repeat int // each key so often among what waits
		plain  bool
	}{{"unique without looking", 1, true}, {"unique", 1, false}, {"each four times", 4, false}} {
		b.Run(bc.name, func(b *testing.B) {
			n := loneNode(1)
			keys := make([]string, benchKeys)
			for i := range keys {
				keys[i] = fmt.Sprintf("user:%08d", i)
			}
			var sent atomic.Int64
			var bt batch
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				e := newEntry(sink.Live, keys[(i/4096*4096+i%4096/bc.repeat)%benchKeys], 0, dropped{})
				if bc.plain {
					pushBlindly(n, &e)
				} else if room, err := n.push(&e); room != nil || err != nil {
					b.Fatal("no room", err)
				}
				if i%4096 == 4095 || i == b.N-1 {
					for n.take(0, &bt, batchKeys, batchBytes, false) {
						sent.Add(int64(len(bt.entries)))
						n.settle(0, len(bt.entries), true)
						bt.reset()
					}
				}
			}
			b.ReportMetric(float64(sent.Load())/float64(b.N), "sent/op")
		})
	}
}

// pushBlindly is push and enqueue without the look for one alike.
func pushBlindly(n *node, e *entry) {
	n.client.budget.reserve(e.size(), n.client.budget.limit)
	n.mu.Lock()
	l := &n.mu.lanes[e.lane]
	if n.idle() {
		n.mu.pace.start(time.Unix(0, e.since))
	}
	l.append(*e)
	l.count++
	l.bytes += e.size()
	n.mu.used = time.Unix(0, e.since)
	n.mu.Unlock()
	signal(n.wake)
}

// The age of a delete that others joined is the first one's: it waits no longer for them.
func TestJoinedDeletesAreAsOldAsTheFirst(t *testing.T) {
	n := loneNode(1)
	pushOne(t, n, "a", dropped{})
	first := n.state().OldestSince
	<-time.After(time.Millisecond)
	pushOne(t, n, "a", dropped{})
	if got := n.state().OldestSince; !got.Equal(first) {
		t.Errorf("%s became %s", first, got)
	}
}

// What a burst made a queue grow by is given back when the node idles.
func TestAnIdleNodeKeepsLittleRoom(t *testing.T) {
	n := loneNode(1)
	for i := range 10 * keptQueue {
		pushOne(t, n, fmt.Sprint("k", i), dropped{})
	}
	drain(n, batchKeys)
	grown := cap(n.mu.lanes[sink.Live].queue)
	n.check(time.Now())
	if l := &n.mu.lanes[sink.Live]; grown < 10*keptQueue || cap(l.queue) > keptQueue || len(l.index.slots) > 4*keptQueue {
		t.Errorf("room for %d entries was left of %d, and %d slots", cap(l.queue), grown, len(l.index.slots))
	}
	pushOne(t, n, "k", dropped{})
	if got := drain(n, 10); len(got) != 1 || got[0].key != "k" {
		t.Errorf("then: %+v", got)
	}
}
