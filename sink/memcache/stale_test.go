package memcache

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// person speaks to a node on a connection of its own, a line at a time.
type person struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newPerson(t *testing.T, addr string) *person {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &person{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// ask sends a line and returns the answer's first; want answers that are one line alone.
func (p *person) ask(line string) string {
	p.t.Helper()
	p.conn.SetDeadline(time.Now().Add(deadline))
	if _, err := fmt.Fprintf(p.conn, "%s\r\n", line); err != nil {
		p.t.Fatal(err)
	}
	answer, err := p.in.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimRight(answer, "\r\n")
}

// cas is the CAS value that an answer shows.
func cas(t *testing.T, answer string) string {
	t.Helper()
	for _, word := range strings.Fields(answer) {
		if word[0] == 'c' {
			return word[1:]
		}
	}
	t.Fatalf("%q shows no CAS", answer)
	return ""
}

func markAll(t *testing.T, c *Client, node string, keys []string, ttl time.Duration) acks {
	t.Helper()
	w := make(acks, 2*len(keys)+1)
	for _, key := range keys {
		if err := c.MarkStale(t.Context(), sink.Live, sink.Copy{Node: node, Key: key}, ttl, w); err != nil {
			t.Fatalf("MarkStale(%s): %v", key, err)
		}
	}
	return w
}

func TestMarkStale(t *testing.T) { markStale(t, memcachetest.Start(t).Addr()) }

// markStale marks what is there, and calls what is not done: with the time that was asked for, or by a delete.
func markStale(t *testing.T, addr string) {
	for _, tc := range []struct {
		protocol Protocol
		ttl      time.Duration
		want     string // what mg k s t shows afterwards; of the time the tens
	}{
		{Meta, 35 * time.Second, "HD s3 t3"},
		{Meta, 55*time.Second + 900*time.Millisecond, "HD s3 t5"},
		{Meta, time.Minute, "HD s3 t"},
		{Classic, 35 * time.Second, "EN"},
		{Meta, 0, "EN"}, // T0 would leave the item for ever
		{Meta, -time.Second, "EN"},
		{Meta, time.Second - 1, "EN"},
		{Meta, time.Minute + 1, "EN"},
	} {
		t.Run(fmt.Sprint(tc.protocol, " ", tc.ttl), func(t *testing.T) {
			p, key := newPerson(t, addr), fmt.Sprintf("%s:%d", tc.protocol, tc.ttl)
			if got := p.ask("ms " + key + " 3 T1000\r\nold"); got != "HD" {
				t.Fatal(got)
			}
			c, _ := start(t, Options{Protocol: tc.protocol})
			markAll(t, c, addr, []string{key, "absent"}, tc.ttl).want(t, 2)
			got := p.ask("mg " + key + " s t")
			if !strings.HasPrefix(got, tc.want) || strings.HasSuffix(got, " X W") != (tc.want != "EN") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLeaseInFlight(t *testing.T) { leaseInFlight(t, memcachetest.Start(t).Addr()) }

// leaseInFlight is what each action does to a reader that won a lease, read the old row, and fills late: it is refused, whether
// the lease was for a key that was not there or for the refill of a stale one; then the next reader wins, and its fill stays.
func leaseInFlight(t *testing.T, addr string) {
	invalidate := map[string]func(*testing.T, *Client, []string) acks{
		"delete": func(t *testing.T, c *Client, keys []string) acks { return deleteAll(t, c, addr, keys) },
		"stale": func(t *testing.T, c *Client, keys []string) acks {
			return markAll(t, c, addr, keys, 35*time.Second)
		},
	}
	for _, tc := range []struct {
		action, before string // before the lease: nothing, or a value that is marked stale
		late, next     string // what the late fill is answered, and what the next reader sees
	}{
		{"delete", "nothing", "NF", "VA 0 c W"},
		{"delete", "stale", "NF", "VA 0 c W"},
		{"stale", "nothing", "EX", "VA 0 c X W"}, // an empty value, and told to refill it
		{"stale", "stale", "EX", "VA 5 c X W"},   // the value from before
	} {
		t.Run(tc.action+" over "+tc.before, func(t *testing.T) {
			p, key := newPerson(t, addr), "lease:"+tc.action+":"+tc.before
			c, _ := start(t, Options{})
			if tc.before == "stale" {
				p.ask("ms " + key + " 5\r\nfirst")
				markAll(t, c, addr, []string{key}, 35*time.Second).want(t, 1)
			}
			won := p.ask("mg " + key + " c N600")
			if !strings.HasSuffix(won, " W") {
				t.Fatalf("no lease was won: %q", won)
			}
			invalidate[tc.action](t, c, []string{key}).want(t, 1)
			if got := p.ask("ms " + key + " 3 T600 C" + cas(t, won) + "\r\nold"); got != tc.late {
				t.Errorf("the late fill was answered %q, want %q", got, tc.late)
			}
			next := p.ask("mg " + key + " v c N600")
			if got := strings.Replace(next, "c"+cas(t, next), "c", 1); got != tc.next {
				t.Errorf("the next reader sees %q, want %q", got, tc.next)
			}
			if _, err := p.in.ReadString('\n'); err != nil { // the value
				t.Fatal(err)
			}
			if got := p.ask("ms " + key + " 3 T600 C" + cas(t, next) + "\r\nnew"); got != "HD" {
				t.Errorf("its fill was answered %q", got)
			}
			if got := p.ask("mg " + key + " s"); got != "HD s3" {
				t.Errorf("in the end there is %q, want a value of 3 bytes that is not stale", got)
			}
		})
	}
}

// Each fault that a delete may meet in the middle of a batch: no mark is called done that was not made, and every one is in the end.
func TestFaultsOfMarks(t *testing.T) {
	for name, fault := range map[string]memcachetest.Reply{
		"no answer":                    {Then: memcachetest.Stall},
		"connection closed":            {Then: memcachetest.Hangup},
		"a success cut off":            {Text: "MN", Then: memcachetest.Hangup},
		"an error line":                {Text: "SERVER_ERROR out of memory\r\n", Then: memcachetest.Skip},
		"an answer that is not one":    {Text: "EX\r\n", Then: memcachetest.Skip},
		"more answers than were asked": {Text: strings.Repeat("NF\r\n", 300), Then: memcachetest.Skip},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.Start(t)
			keys := fill(node, 100)
			c, _ := start(t, quick)
			faultOn(node, 50, fault)
			markAll(t, c, node.Addr(), keys, time.Minute).want(t, len(keys))
			if c.Nodes()[0].Retried == 0 {
				t.Error("nothing was sent again")
			}
			p := newPerson(t, node.Addr())
			for i := range 100 {
				if got := p.ask(fmt.Sprintf("mg user:%d s", i)); got != "HD s3 X W" {
					t.Errorf("user:%d: %q", i, got)
				}
			}
		})
	}
}

// A proxy that knows no marks is given deletes, one key after the other; deletes beside them are not held up.
func TestAMarkThatIsNotKnownBecomesADelete(t *testing.T) {
	node := memcachetest.Start(t)
	keys := fill(node, 10)
	var refused atomic.Int64
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if strings.Contains(line, " I T") {
			refused.Add(1)
			return memcachetest.Reply{Text: "CLIENT_ERROR invalid flag\r\n", Then: memcachetest.Skip}
		}
		return memcachetest.Reply{}
	})
	opts := quick
	opts.ConnsPerNode = 1
	c := New(opts, slog.New(slog.DiscardHandler))
	marked := markAll(t, c, node.Addr(), keys[:10], time.Minute) // before Run: one batch with the deletes
	deleted := deleteAll(t, c, node.Addr(), keys[10:])
	run(t, c)
	marked.want(t, 10)
	deleted.want(t, 10)
	if node.Len() != 0 || refused.Load() == 0 {
		t.Errorf("%d keys are left, %d marks were refused", node.Len(), refused.Load())
	}
}

func TestMarkStaleOnAClosedClient(t *testing.T) {
	c := New(Options{}, slog.New(slog.DiscardHandler))
	close(c.closed)
	if err := c.MarkStale(t.Context(), sink.Live, sink.Copy{Node: "n:1", Key: "k"}, time.Second, make(acks, 1)); err != ErrClosed {
		t.Errorf("got %v", err)
	}
}
