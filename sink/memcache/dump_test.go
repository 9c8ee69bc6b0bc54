package memcache

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// dumped is what a dump shows: CAS values by key.
func dumped(t *testing.T, c *Client, addr string) (map[string]uint64, error) {
	t.Helper()
	type item struct {
		end int // of its key in keys
		cas uint64
	}
	var keys []byte
	var items []item
	err := c.Dump(t.Context(), addr, func(key []byte, cas uint64) { // as little as can be: the node waits for nobody
		keys = append(keys, key...)
		items = append(items, item{len(keys), cas})
	})
	seen, from := make(map[string]uint64, len(items)), 0
	for _, it := range items {
		key := string(keys[from:it.end])
		if _, twice := seen[key]; twice {
			t.Errorf("%q came twice", key)
		}
		seen[key], from = it.cas, it.end
	}
	return seen, err
}

func TestDump(t *testing.T) {
	dumps(t, memcachetest.Start(t).Addr(), memcachetest.Start(t, "-C").Addr())
}

// dumps shows an empty node, then every key of one that has some, whatever its bytes, with its CAS value.
func dumps(t *testing.T, addr, noCAS string) {
	for _, opts := range []Options{{}, {Protocol: Classic}} {
		c, p := asker(opts), newPerson(t, addr)
		p.ask("flush_all")
		if got, err := dumped(t, c, addr); err != nil || len(got) != 0 {
			t.Errorf("an empty node: %v, %v", got, err)
		}
		want := map[string]uint64{}
		for i := range 3000 {
			key := fmt.Sprintf("user:%d:é", i)
			want[key] = p.write(key, "x")
		}
		for sent, key := range map[string]string{"YQBiDQog/w== b": "a\x00b\r\n \xff", "YSUlMjU= b": "a%%25", "a%41": "a%41", strings.Repeat(":", 250): strings.Repeat(":", 250)} {
			want[key] = p.write(sent, "x")
		}
		if got, err := dumped(t, c, addr); err != nil || !maps.Equal(got, want) {
			t.Errorf("%d keys, %v; want %d", len(got), err, len(want))
		}
	}
	newPerson(t, noCAS).ask("ms k 1\r\nx")
	if got, err := dumped(t, asker(Options{}), noCAS); err != nil || len(got) != 1 || got["k"] != 0 {
		t.Errorf("without CAS values: %v, %v", got, err)
	}
}

// withKeys is a node with ten keys on which a command, or the sixth line of a dump, meets r.
func withKeys(t *testing.T, command string, r memcachetest.Reply) *memcachetest.Server {
	t.Helper()
	node := memcachetest.Start(t)
	for i := range 10 {
		node.Set(fmt.Sprint("user:", i), "x")
	}
	var lines atomic.Int64
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if line == command || strings.HasPrefix(line, "key=") && lines.Add(1) == 6 && command == "the sixth line" {
			return r
		}
		return memcachetest.Reply{}
	})
	return node
}

const (
	metadump = "lru_crawler metadump hash"
	aLine    = "key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63\n"
)

func TestFaultsOfDumps(t *testing.T) {
	skip := func(text string) memcachetest.Reply {
		return memcachetest.Reply{Text: text, Then: memcachetest.Skip}
	}
	hangup := func(text string) memcachetest.Reply {
		return memcachetest.Reply{Text: text, Then: memcachetest.Hangup}
	}
	const busy, never, void = "*sink.BusyError", "*sink.NoDumpError", "*sink.VoidError"
	for name, tc := range map[string]struct {
		at     string
		reply  memcachetest.Reply
		err    string
		reason string
	}{
		"OK, and then not":         {metadump, hangup("OK\r\nERROR\r\n"), void, `"ERROR`},
		"BUSY":                     {metadump, skip("BUSY currently processing crawler request\r\n"), busy, "lru_crawler_running"},
		"crawler disabled":         {metadump, skip("CLIENT_ERROR lru crawler disabled\r\n"), never, "no_lru_crawler"},
		"not allowed":              {metadump, skip("ERROR metadump not allowed\r\n"), never, "-X"},
		"not known":                {metadump, skip("ERROR\r\n"), never, "as a proxy"},
		"hash is not known":        {metadump, skip("BADCLASS invalid class id\r\n"), never, "newer memcached"},
		"locked":                   {metadump, skip("ERROR locked try again later\r\n"), void, "locked try again later"},
		"an unknown error":         {metadump, skip("ERROR an unknown error happened\r\n"), void, "unknown error"},
		"SERVER_ERROR":             {metadump, skip("SERVER_ERROR out of memory\r\n"), void, "SERVER_ERROR"},
		"unauthenticated":          {metadump, skip("CLIENT_ERROR unauthenticated\r\n"), void, "unauthenticated"},
		"an empty line":            {metadump, skip("\r\n"), void, `""`},
		"hangs up":                 {metadump, hangup(""), void, "EOF"},
		"a first line cut off":     {metadump, hangup(aLine[:20]), void, "EOF"},
		"a line cut off":           {"the sixth line", hangup(aLine[:20]), void, "EOF"},
		"lines cut off":            {"the sixth line", hangup(""), void, "EOF"},
		"END cut off":              {"END", hangup("END"), void, "EOF"},
		"END without CR":           {"END", skip("END\n"), void, `"END"`},
		"a line that is none":      {"the sixth line", skip("junk\n"), void, `"junk"`},
		"a line within another":    {"the sixth line", memcachetest.Reply{Text: aLine[:30]}, void, "a line that is none"},
		"BUSY within":              {"the sixth line", skip("BUSY currently processing crawler request\r\n"), void, "BUSY"},
		"a line that never ends":   {"the sixth line", skip("key=" + strings.Repeat("a", 100_000)), void, "more than 2048 bytes"},
		"END, and lines":           {"the sixth line", memcachetest.Reply{Text: "END\r\n"}, void, "came behind END"},
		"END, and half a line":     {"END", hangup("END\r\nkey="), void, `"key=" came behind END`},
		"END twice":                {"END", memcachetest.Reply{Text: "END\r\n"}, void, "came behind END"},
		"END, and something later": {"version", memcachetest.Reply{Text: aLine}, void, "came behind END"},
		"END, and it hangs up":     {"version", hangup(""), void, "whether END was the end"},
		"silence within":           {"the sixth line", memcachetest.Reply{Then: memcachetest.Stall}, void, "nothing came for"},
		"silence at the end":       {"END", memcachetest.Reply{Then: memcachetest.Stall}, void, "nothing came for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := withKeys(t, tc.at, tc.reply)
			_, err := dumped(t, asker(Options{Timeout: 200 * time.Millisecond}), node.Addr())
			if got := fmt.Sprintf("%T", err); got != tc.err || !strings.Contains(errText(err), tc.reason) || !strings.Contains(errText(err), node.Addr()) {
				t.Errorf("%s: %v; want %s with %q", got, err, tc.err, tc.reason)
			}
			if tc.err == void && errors.Unwrap(err) == nil {
				t.Error("it wraps nothing")
			}
			eventually(t, "its connection is closed", func() bool { open, _ := node.Conns(); return open == 0 })
		})
	}
}

// What its settings say is not asked for.
func TestNodesThatCanNeverBeDumped(t *testing.T) {
	for args, reason := range map[string]string{"-X": "-X", "-o no_lru_crawler": "lru_crawler enable"} {
		node := memcachetest.Start(t, strings.Fields(args)...)
		node.Intercept(func(_ int, line string) memcachetest.Reply {
			if line == metadump {
				t.Error("it was asked all the same")
			}
			return memcachetest.Reply{}
		})
		neverDumps(t, node.Addr(), reason)
	}
}

func neverDumps(t *testing.T, addr, reason string) {
	t.Helper()
	c := asker(Options{})
	var never *sink.NoDumpError
	if _, err := dumped(t, c, addr); !errors.As(err, &never) || never.Node != addr || !strings.Contains(never.Why, reason) {
		t.Errorf("got %v, want %q", err, reason)
	}
	if st, err := c.Stats(t.Context(), addr); err != nil || st.Running || st.Pid == 0 {
		t.Errorf("its stats: %+v, %v", st, err)
	}
}

// A node whose hash table grows, or is about to, is not asked: it might never answer anything again.
func TestANodeWhoseTableGrowsIsNotDumped(t *testing.T) {
	const limit = 3 << 15 // items, of a table of 2^16 buckets
	for _, tc := range []struct {
		before, items int // the second 100 ms later
		expanding     bool
		busy          bool
	}{
		{0, 0, false, false},
		{0, 0, true, true},
		{limit - 100, limit - 100, false, false},
		{limit - 98, limit - 97, false, true}, // a thousandth is left alone
		{limit + 1, limit + 1, false, true},   // it looks once a second
		{limit / 2, limit/2 + limit/25, false, false},
		{limit / 2, limit/2 + limit/20, false, true}, // in less than a second
		{limit - 10, limit / 2, false, true},         // the first time
		{limit - 1000, limit / 2, false, false},
	} {
		node, asked := memcachetest.Start(t), 0
		node.Intercept(func(_ int, line string) memcachetest.Reply {
			switch {
			case line == metadump && tc.busy:
				t.Errorf("%+v: it was asked", tc)
			case line == "stats":
				items := tc.before
				if asked++; asked == 2 {
					items = tc.items
				}
				return memcachetest.Reply{Then: memcachetest.Skip, Text: fmt.Sprintf(
					"STAT pid 1\r\nSTAT time 2\r\nSTAT uptime 1\r\nSTAT cmd_get 0\r\nSTAT cmd_set 0\r\nSTAT get_misses 0\r\nSTAT hash_power_level 16\r\n"+
						"STAT hash_is_expanding %d\r\nSTAT lru_crawler_running 0\r\nSTAT curr_items %d\r\nEND\r\n", map[bool]int{true: 1}[tc.expanding], items)}
			}
			return memcachetest.Reply{}
		})
		var busy *sink.BusyError
		if _, err := dumped(t, asker(Options{}), node.Addr()); errors.As(err, &busy) != tc.busy || (err != nil) != tc.busy || tc.busy && !strings.Contains(err.Error(), "its hash table grows") {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	full := stats{hashPower: maxHashPower, expanding: true} // it grows no further
	if full.CurrItems = 1 << 40; full.grows(&full) {
		t.Error("a table of 2^32 buckets is said to grow")
	}
}

// What fails when the figures are asked for again, right before the dump.
func TestFaultsOfTheSecondLook(t *testing.T) {
	for name, r := range map[string]memcachetest.Reply{
		"closed": {Then: memcachetest.Hangup}, "SERVER_ERROR": {Text: "SERVER_ERROR no\r\n", Then: memcachetest.Skip}, "silence": {Then: memcachetest.Stall},
	} {
		node, asked := memcachetest.Start(t), 0
		node.Intercept(func(_ int, line string) memcachetest.Reply {
			if line == "stats" {
				if asked++; asked == 2 {
					return r
				}
			}
			if line == metadump {
				t.Errorf("%s: it was asked", name)
			}
			return memcachetest.Reply{}
		})
		if _, err := dumped(t, asker(Options{Timeout: 200 * time.Millisecond}), node.Addr()); err == nil || !strings.Contains(err.Error(), node.Addr()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While the reader of one dump is held up, a second one is not asked for: it would hang a thread of the server.
func TestASecondDumpIsNotAskedFor(t *testing.T) {
	node := withKeys(t, "", memcachetest.Reply{})
	var asked atomic.Int64
	held, release := make(chan struct{}), make(chan struct{})
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		switch {
		case line == metadump:
			asked.Add(1)
		case line == "END":
			close(held)
			<-release
		}
		return memcachetest.Reply{}
	})
	c := asker(Options{})
	first := make(chan error)
	go func() { first <- c.Dump(t.Context(), node.Addr(), func([]byte, uint64) {}) }()
	<-held
	var busy *sink.BusyError
	if _, err := dumped(t, c, node.Addr()); !errors.As(err, &busy) || busy.Node != node.Addr() {
		t.Errorf("got %v", err)
	}
	if st, err := c.Stats(t.Context(), node.Addr()); err != nil || !st.Running {
		t.Errorf("its stats: %+v, %v", st, err)
	}
	close(release)
	if err := <-first; err != nil || asked.Load() != 1 {
		t.Errorf("the first one: %v; %d were asked for", err, asked.Load())
	}
}

// A table of many buckets may be silent for long, and one whose crawler sleeps for long.
func TestHowLongANodeMayBeSilent(t *testing.T) {
	for _, tc := range []struct {
		hashPower uint64
		sleep     time.Duration
		want      time.Duration
	}{
		{16, 100 * time.Microsecond, 571500 * time.Microsecond},
		{26, 100 * time.Microsecond, 74319 * time.Millisecond},
		{16, time.Second, 65565 * time.Millisecond},
		{maxHashPower, 0, 4295467 * time.Millisecond},
	} {
		st := stats{hashPower: tc.hashPower, crawlerSleep: tc.sleep}
		if got := st.silence(); got.Round(time.Millisecond) != tc.want.Round(time.Millisecond) {
			t.Errorf("2^%d buckets, sleeping %s: %s, want %s", tc.hashPower, tc.sleep, got, tc.want)
		}
	}
	st := stats{known: map[string]bool{}}
	if st.take("hash_power_level", "200"); st.hashPower != maxHashPower {
		t.Errorf("2^%d buckets", st.hashPower)
	}
}

// readDump is a dump of what a server has written, which comes in parts of so many bytes; what is behind END comes when it is asked for.
func readDump(text string, part int, f func(key []byte, cas uint64)) error {
	end := len(text)
	if at := strings.Index(text, "END\r\n"); at >= 0 {
		end = at + len("END\r\n")
	}
	asked := &gate{open: make(chan struct{})}
	conn := &gatedConn{text: io.MultiReader(strings.NewReader(text[:end]), asked, strings.NewReader(text[end:])), part: part, asked: asked}
	if end == len(text) {
		asked.let()
	}
	d := newDump(&metaLink{node: "n:1", conn: conn, in: bufio.NewReader(conn)}, new(stats))
	d.incoming.silence = time.Hour
	return d.run(f)
}

// gatedConn reads what is behind the gate when it is asked for the version, or closed.
type gatedConn struct {
	net.Conn
	text  io.Reader
	part  int
	asked *gate
}

func (c *gatedConn) Read(b []byte) (int, error) { return c.text.Read(b[:min(len(b), c.part)]) }
func (c *gatedConn) Write(b []byte) (int, error) {
	if string(b) == "version\r\n" {
		c.asked.let()
	}
	return len(b), nil
}
func (c *gatedConn) Close() error                   { c.asked.let(); return nil }
func (*gatedConn) SetDeadline(time.Time) error      { return nil }
func (*gatedConn) SetReadDeadline(time.Time) error  { return nil }
func (*gatedConn) SetWriteDeadline(time.Time) error { return nil }

// gate is a reader of nothing that waits until it is open.
type gate struct {
	once sync.Once
	open chan struct{}
}

func (g *gate) let()                     { g.once.Do(func() { close(g.open) }) }
func (g *gate) Read([]byte) (int, error) { <-g.open; return 0, io.EOF }

// As the protocol's description has it.
func TestADumpThatBeginsWithOK(t *testing.T) {
	for text, want := range map[string]int{"OK\r\nEND\r\nVERSION 1\r\n": 0, "OK\r\n" + aLine + "END\r\nVERSION 1\r\n": 1} {
		got := 0
		if err := readDump(text, 1<<20, func([]byte, uint64) { got++ }); err != nil || got != want {
			t.Errorf("%q: %d keys, %v", text, got, err)
		}
	}
}

// Whatever falls on the end of what is read at once.
func TestLinesAcrossReads(t *testing.T) {
	var text strings.Builder
	want := 0
	for want = 0; text.Len() < 5*dumpBuffer; want++ {
		fmt.Fprintf(&text, "key=%s exp=-1 la=1 cas=%d fetch=no cls=1 size=63\n", strings.Repeat("%3A", 1+want%250), want)
	}
	text.WriteString("END\r\nVERSION 1.6.18\r\n")
	for _, part := range []int{1 << 20, 1500, 17, 1} {
		got := 0
		err := readDump(text.String(), part, func(key []byte, cas uint64) {
			if len(key) != 1+got%250 || cas != uint64(got) {
				t.Fatalf("line %d: %q, %d", got, key, cas)
			}
			got++
		})
		if got != want || err != nil {
			t.Errorf("in parts of %d bytes: %d of %d lines, %v", part, got, want, err)
		}
	}
}

// However long a dump is, it holds no more memory.
func TestADumpAllocatesItsBuffersAlone(t *testing.T) {
	const lines = 30_000
	text := strings.Repeat(aLine, lines) + "END\r\nVERSION 1.6.18\r\n"
	n := testing.AllocsPerRun(5, func() {
		if err := readDump(text, 1500, func([]byte, uint64) {}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 100 { // of them up to 30 of a chunk
		t.Errorf("%v allocations for %d lines", n, lines)
	}
}

// FuzzDump reads any answer: it is nobody's dump but what is one from beginning to end.
func FuzzDump(f *testing.F) {
	for _, seed := range []string{
		"END\r\nVERSION 1.6.18\r\n", aLine + "END\r\nVERSION 1\r\n", aLine + aLine[:20] + aLine + "END\r\nVERSION 1\r\n", "BUSY\r\n", "END\r\n" + aLine, "ERROR\r\n", "\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys := 0
		err := readDump(text, 1+len(text)/3, func(key []byte, cas uint64) {
			if keys++; len(key) == 0 || len(key) > sink.MaxKeyLen {
				t.Errorf("the key %q", key)
			}
		})
		var busy *sink.BusyError
		var never *sink.NoDumpError
		var void *sink.VoidError
		switch {
		case err == nil:
			lines, _, _ := strings.Cut(text, "END\r\n")
			if !strings.Contains(text, "END\r\n") || strings.Count(lines, "\n") != keys || strings.Count(lines, "key=") < keys {
				t.Errorf("%q was taken for a dump of %d keys", text, keys)
			}
		case !errors.As(err, &busy) && !errors.As(err, &never) && !errors.As(err, &void):
			t.Errorf("%q: %v", text, err)
		}
	})
}
