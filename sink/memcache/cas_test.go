package memcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// write stores a value and returns its CAS value. The key goes as it is, or in base64 (`key b`).
func (p *person) write(key, value string) uint64 {
	p.t.Helper()
	key, b64, _ := strings.Cut(key, " ")
	return number(p.t, cas(p.t, p.ask(fmt.Sprintf("ms %s %d c %s\r\n%s", key, len(value), b64, value))))
}

func number(t *testing.T, digits string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func deleteIf(t *testing.T, c *Client, node, key string, cas uint64, staleFor time.Duration, w sink.Waiter) {
	t.Helper()
	if err := c.DeleteIf(t.Context(), sink.Copy{Node: node, Key: key}, cas, staleFor, w); err != nil {
		t.Fatalf("DeleteIf(%q): %v", key, err)
	}
}

// isChanged fails unless err says so of the copy.
func isChanged(t *testing.T, err error, cp sink.Copy) {
	t.Helper()
	var changed *sink.ChangedError
	if !errors.As(err, &changed) || changed.Copy != cp {
		t.Errorf("%v: got %v, want a *sink.ChangedError of it", cp, err)
	}
}

func TestDeleteIf(t *testing.T) { deletesIf(t, memcachetest.Start(t).Addr()) }

// deletesIf is what becomes of an item that has the CAS value, has another, or is not there.
func deletesIf(t *testing.T, addr string) {
	for _, tc := range []struct {
		protocol Protocol
		staleFor time.Duration
		refilled bool   // since the CAS value was seen
		cas      bool   // that one is given, not 0
		want     string // what mg s t shows then; of the time the tens
	}{
		{Meta, 0, false, true, "EN"},
		{Meta, 0, true, true, "HD s3 t-1"},
		{Meta, 0, true, false, "EN"},
		{Meta, 35 * time.Second, false, true, "HD s3 t3"},
		{Meta, 35 * time.Second, true, true, "HD s3 t-1"},
		{Meta, 35 * time.Second, true, false, "HD s3 t3"},
		{Meta, time.Hour, false, true, "EN"}, // not within the bounds of a mark
		{Classic, 0, false, true, "EN"},
		{Classic, 35 * time.Second, true, true, "EN"}, // neither compares nor marks
	} {
		for _, key := range []string{"plain", "c3BhY2VkIGtleQ== b"} {
			t.Run(fmt.Sprint(tc, key), func(t *testing.T) {
				if tc.protocol == Classic && key != "plain" {
					key = "plain2"
				}
				wire := key
				if key == "c3BhY2VkIGtleQ== b" {
					wire = "spaced key"
				}
				p := newPerson(t, addr)
				seen := p.write(key, "old")
				changed := tc.refilled && tc.cas && tc.protocol == Meta
				if tc.refilled {
					p.write(key, "new")
				}
				if !tc.cas {
					seen = 0
				}
				c, _ := start(t, Options{Protocol: tc.protocol})
				w := make(acks, 10)
				deleteIf(t, c, addr, wire, seen, tc.staleFor, w)
				if err := w.next(t).err; changed {
					isChanged(t, err, sink.Copy{Node: addr, Key: wire})
				} else if err != nil {
					t.Error(err)
				}
				name, b64, _ := strings.Cut(key, " ")
				if got := p.ask("mg " + name + " s t " + b64); !strings.HasPrefix(got, tc.want) || strings.Contains(got, " X") != strings.Contains(tc.want, "t3") {
					t.Errorf("then %q, want %q", got, tc.want)
				}
				deleteIf(t, c, addr, "absent", 17, tc.staleFor, w)
				if err := w.next(t).err; err != nil {
					t.Errorf("of a key that is not there: %v", err)
				}
			})
		}
	}
}

func TestDeleteIfOfMany(t *testing.T) { deletesManyIf(t, memcachetest.Start(t).Addr()) }

// deletesManyIf mixes, in full batches, what has changed with what has not, with what is not there and what does not compare.
func deletesManyIf(t *testing.T, addr string) {
	const n = 5000
	p := newPerson(t, addr)
	seen := make([]uint64, n)
	for i := range seen {
		if i%5 != 4 {
			seen[i] = p.write(fmt.Sprint("k:", i), "old")
		}
	}
	for i := 0; i < n; i += 5 {
		p.write(fmt.Sprint("k:", i), "new")
	}
	c := New(Options{ConnsPerNode: 1, MaxLag: time.Hour}, slog.New(slog.DiscardHandler))
	w := make(acks, n+1)
	for i := range seen {
		cas, stale := seen[i], time.Duration(0)
		switch i % 5 {
		case 2:
			cas = 0
		case 3:
			stale = time.Minute
		case 4:
			cas = 1 << 62 // not there
		}
		deleteIf(t, c, addr, fmt.Sprint("k:", i), cas, stale, w)
	}
	run(t, c)
	for range n {
		got := w.next(t)
		i := number(t, strings.TrimPrefix(got.Key, "k:"))
		if i%5 == 0 {
			isChanged(t, got.err, got.Copy)
		} else if got.err != nil {
			t.Fatalf("%s: %v", got.Key, got.err)
		}
	}
	w.none(t)
	for i := range seen {
		want := map[int]string{0: "HD s3", 3: "HD s3 X W"}[i%5]
		if want == "" {
			want = "EN"
		}
		if got := p.ask(fmt.Sprintf("mg k:%d s", i)); got != want {
			t.Fatalf("k:%d: %q, want %q", i, got, want)
		}
	}
	if st := c.Nodes()[0]; st.Retried != 0 || st.Queued != 0 || st.QueuedBytes != 0 || c.budget.held.Load() != 0 {
		t.Errorf("state: %+v, %d bytes held", st, c.budget.held.Load())
	}
}

// A batch of five: two compare, one of them with a mark, and one is a key in base64 that does.
func TestExchangeThatCompares(t *testing.T) {
	for _, tc := range []struct {
		answers  string
		careful  bool
		answered int
		changed  string // of the five
		err      string // part of its text
	}{
		{"MN\r\n", false, 5, "-----", ""},
		{"EX O1\r\nMN\r\n", false, 5, "-x---", ""},
		{"NF\r\nNF O1\r\nEX O4\r\nMN\r\n", false, 5, "----x", ""},
		{"EX O4 \r\nEX O2\r\nMN\r\n", false, 5, "--x-x", ""},
		{"EX\r\nMN\r\n", false, 0, "-----", `"EX"`},             // whose?
		{"EX O0\r\nMN\r\n", false, 0, "-----", `"EX O0"`},       // that one does not compare
		{"EX O5\r\nMN\r\n", false, 0, "-----", `"EX O5"`},       // there are no six
		{"EX O-1\r\nMN\r\n", false, 0, "-----", `"EX O-1"`},     //
		{"EX O\r\nMN\r\n", false, 0, "-----", `"EX O"`},         //
		{"EX O1 x\r\nMN\r\n", false, 0, "-----", `"EX O1 x"`},   //
		{"NS O1\r\nMN\r\n", false, 0, "-----", `"NS O1"`},       //
		{"EX O1\r\nERROR\r\n", false, 0, "-x---", "ERROR"},      // what was noted is taken back when it is queued again
		{"EX O1\r\nEX", false, 0, "-x---", "closed"},            //
		{"EX O99999999999999999999\r\n", false, 0, "-----", ""}, //
		{"HD\r\nEX\r\nNF\r\nHD\r\nEX\r\nMN\r\n", true, 5, "-x--x", ""},
		{"HD\r\nHD\r\nHD\r\nHD\r\nHD\r\nMN\r\n", true, 5, "-----", ""},
		{"EX\r\n", true, 0, "-----", `"EX"`},
		{"HD\r\nEX O1\r\n", true, 1, "-----", `"EX O1"`},
		{"HD\r\nEX\r\nHD\r\nHD\r\nCLIENT_ERROR invalid or duplicate flag\r\n", true, 4, "-x---", "unexpected answer"}, // it may be C
		{"HD\r\nHD\r\nHD\r\nHD\r\nHD\r\nEX\r\n", true, 5, "-----", `"EX"`},
	} {
		l, conn := scriptedLink(tc.answers)
		batch := []entry{{key: "a"}, {key: "b"}, {key: "c", stale: 30}, {key: "d"}, {key: "e e", base64: true}}
		for i, cas := range map[int]uint64{1: 11, 2: 12, 4: 1<<64 - 1} {
			batch[i].waiter, batch[i].compares = &comparison{cas: cas}, true
		}
		answered, err := l.exchange(batch, tc.careful)
		wantErr := tc.err != "" || tc.answered < len(batch)
		if text := errText(err); answered != tc.answered || (err != nil) != wantErr || !strings.Contains(text, tc.err) {
			t.Errorf("%q, careful %v: answered %d, %s; want %d, %s", tc.answers, tc.careful, answered, text, tc.answered, tc.err)
		}
		changed := ""
		for i := range batch {
			mark := "-"
			if batch[i].compares && batch[i].comparison().changed {
				mark = "x"
			}
			changed += mark
			batch[i].again()
			if batch[i].compares && batch[i].comparison().changed {
				t.Error("what an exchange noted that failed counts for the next one")
			}
		}
		if changed != tc.changed {
			t.Errorf("%q, careful %v: changed %s, want %s", tc.answers, tc.careful, changed, tc.changed)
		}
		want := "md a q\r\nmd b q C11 O1\r\nmd c q I T30 C12 O2\r\nmd d q\r\nmd ZSBl b q C18446744073709551615 O4\r\nmn\r\n"
		if tc.careful {
			want = "md a\r\nmd b C11\r\nmd c I T30 C12\r\nmd d\r\nmd ZSBl b C18446744073709551615\r\nmn\r\n"
		}
		if got := conn.written.String(); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
}

// Each fault in the middle of a batch: what has not changed is gone in the end, and what has stays, and is said to.
func TestFaultsOfDeletesThatCompare(t *testing.T) {
	for name, fault := range map[string]memcachetest.Reply{
		"no answer":                    {Then: memcachetest.Stall},
		"connection closed":            {Then: memcachetest.Hangup},
		"a success cut off":            {Text: "MN", Then: memcachetest.Hangup},
		"an error line":                {Text: "SERVER_ERROR out of memory\r\n", Then: memcachetest.Skip},
		"a change of nobody's":         {Text: "EX\r\n", Then: memcachetest.Skip},
		"a change of one that is not":  {Text: "EX O4711\r\n", Then: memcachetest.Skip},
		"more answers than were asked": {Text: strings.Repeat("NF O1\r\n", 300), Then: memcachetest.Skip},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.Start(t)
			p := newPerson(t, node.Addr())
			var seen []uint64
			for i := range 100 {
				seen = append(seen, p.write(fmt.Sprint("k", i), "old"))
			}
			for i := 0; i < 100; i += 2 {
				p.write(fmt.Sprint("k", i), "new")
			}
			c, _ := start(t, quick)
			faultOn(node, 51, fault)
			w := make(acks, 201)
			for i := range 100 {
				deleteIf(t, c, node.Addr(), fmt.Sprint("k", i), seen[i], 0, w)
			}
			for range 100 {
				got := w.next(t)
				if number(t, got.Key[1:])%2 == 0 {
					isChanged(t, got.err, got.Copy)
				} else if got.err != nil {
					t.Errorf("%s: %v", got.Key, got.err)
				}
			}
			w.none(t)
			for i := range 100 {
				if value, there := node.Get(fmt.Sprint("k", i)); there != (i%2 == 0) || there && value != "new" {
					t.Errorf("k%d: %q, %v", i, value, there)
				}
			}
			if st := c.Nodes()[0]; st.Retried == 0 || st.QueuedBytes != 0 || c.budget.held.Load() != 0 {
				t.Errorf("state: %+v, %d bytes held", st, c.budget.held.Load())
			}
		})
	}
}

// What does not know the flag C is given plain deletes, one key after the other.
func TestACompareThatIsNotKnownBecomesADelete(t *testing.T) {
	node := memcachetest.Start(t)
	p := newPerson(t, node.Addr())
	var refused atomic.Int64
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if strings.HasPrefix(line, "md ") && strings.Contains(line, " C") {
			refused.Add(1)
			return memcachetest.Reply{Text: "CLIENT_ERROR invalid flag\r\n", Then: memcachetest.Skip}
		}
		return memcachetest.Reply{}
	})
	keys := map[string]string{"a": "a", "b": "b", "YyBj b": "c c"}
	opts := quick
	opts.ConnsPerNode = 1
	c := New(opts, slog.New(slog.DiscardHandler))
	w := make(acks, 10)
	for sent, wire := range keys {
		deleteIf(t, c, node.Addr(), wire, p.write(sent, "old"), time.Minute, w)
	}
	run(t, c)
	w.want(t, len(keys))
	if st := c.Nodes()[0]; node.Len() != 0 || refused.Load() == 0 || st.QueuedBytes != 0 || c.budget.held.Load() != 0 {
		t.Errorf("%d keys are left, %d were refused; %d bytes held; state %+v", node.Len(), refused.Load(), c.budget.held.Load(), st)
	}
}

// A delete that compares goes for itself alone: what joined it would not be done where it finds another value.
func TestADeleteThatComparesIsNeverMerged(t *testing.T) {
	n := loneNode(1)
	w := make(acks, 10)
	push := func(compares bool) {
		e := newEntry(sink.Flush, "k", 0, w)
		if compares {
			e.waiter, e.compares = &comparison{waiter: w, cas: 7}, true
		}
		if room, err := n.push(&e); room != nil || err != nil {
			t.Fatal("no room", err)
		}
	}
	for range 2 {
		push(true)
		push(false)
		n.mu.lanes[sink.Flush].index.rebuild(n.mu.lanes[sink.Flush].queue, 0, n.mu.lanes[sink.Flush].base)
		push(true)
		push(false)
	}
	got := drain(n, 100)
	compare, plain := 0, 0
	for i := range got {
		if got[i].compares {
			compare += got[i].deletes()
		} else {
			plain += got[i].deletes()
		}
	}
	if compare != 4 || plain != 4 || len(got) != 5 {
		t.Errorf("sent: %+v", got)
	}
	if size := n.client.budget.held.Load(); size != 0 {
		t.Errorf("%d bytes are held", size)
	}
}

// Others pay nothing for those that compare.
func TestAnEntryIsNoLarger(t *testing.T) {
	if entrySize != 64 {
		t.Errorf("an entry has %d bytes", entrySize)
	}
	e := entry{waiter: &comparison{}, compares: true}
	if e.size() != entrySize+int(unsafe.Sizeof(comparison{})) {
		t.Errorf("one that compares has %d bytes", e.size())
	}
}

// Where the node goes off, who waits is told so; where nothing is sent any more, Delete's errors come.
func TestDeleteIfOnANodeThatGoesOff(t *testing.T) {
	node := memcachetest.Start(t)
	node.Intercept(func(int, string) memcachetest.Reply { return memcachetest.Reply{Then: memcachetest.Stall} })
	opts := quick
	opts.MaxLag, opts.Timeout = 300*time.Millisecond, time.Hour
	c, _ := start(t, opts)
	w := make(acks, 10)
	deleteIf(t, c, node.Addr(), "k", 7, 0, w)
	checkOff(t, w.next(t).err, node.Addr(), "")
	checkOff(t, c.DeleteIf(t.Context(), sink.Copy{Node: node.Addr(), Key: "k"}, 7, 0, w), node.Addr(), "")

	long := strings.Repeat("k", 251)
	deleteIf(t, c, memcachetest.Start(t).Addr(), long, 7, 0, w)
	var refused *sink.RefusedError
	if err := w.next(t).err; !errors.As(err, &refused) || refused.Copy.Key != long {
		t.Errorf("a key of 251 bytes: %v", err)
	}

	full := New(Options{QueueBytes: 8}, slog.New(slog.DiscardHandler))
	deleteIf(t, full, "n:1", "first", 7, 0, w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := full.DeleteIf(ctx, sink.Copy{Node: "n:1", Key: "k"}, 7, 0, w); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for room: %v", err)
	}
	close(full.closed)
	if err := full.DeleteIf(t.Context(), sink.Copy{Node: "n:1", Key: "k"}, 7, 0, w); err != ErrClosed {
		t.Errorf("closed: %v", err)
	}
}

// FuzzExchangeThatCompares reads any answers: nothing counts as answered, or changed, without the lines that say so.
func FuzzExchangeThatCompares(f *testing.F) {
	for _, seed := range []string{"MN\r\n", "EX O1\r\nMN\r\n", "NF O0\r\nEX O2\r\nMN\r\n", "EX\r\nHD\r\nNF\r\nMN\r\n", "EX O\r\n", "EX O3\r\nMN\r\n"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, answers string, careful bool) {
		l, _ := scriptedLink(answers)
		batch := []entry{{key: "a"}, {key: "b"}, {key: "c"}}
		for i := range batch {
			batch[i].waiter, batch[i].compares = &comparison{cas: 5}, true
		}
		answered, err := l.exchange(batch, careful)
		if err == nil && (answered != 3 || !strings.Contains(answers, "MN")) {
			t.Fatalf("%q: answered %d without an error", answers, answered)
		}
		changed := 0
		for i := range batch {
			if batch[i].comparison().changed {
				changed++
			}
		}
		if said := strings.Count(answers, "EX"); changed > said {
			t.Errorf("%q: %d changed, there are %d such lines", answers, changed, said)
		}
	})
}
