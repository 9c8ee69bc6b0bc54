package memcachetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// starter starts a server with these arguments, and says where it listens.
type starter func(t *testing.T, args ...string) (addr string)

func startFake(t *testing.T, args ...string) string { return Start(t, args...).Addr() }

func TestConformanceOfDumps(t *testing.T)      { conformanceOfDumps(t, startFake) }
func TestDumpLineEnds(t *testing.T)            { dumpLineEnds(t, startFake) }
func TestOneDumpAtATime(t *testing.T)          { oneDumpAtATime(t, startFake) }
func TestASecondDumpHangs(t *testing.T)        { aSecondDumpHangs(t, startFake) }
func TestAPausedDumpHangsClients(t *testing.T) { aPausedDumpHangsClients(t, startFake) }
func TestADumpEndsWithItsClient(t *testing.T)  { aDumpEndsWithItsClient(t, startFake) }
func TestOnItGoesAfterADump(t *testing.T)      { onItGoesAfterADump(t, startFake) }
func TestCounters(t *testing.T)                { countersCount(t, startFake) }
func TestSettings(t *testing.T)                { settingsShow(t, startFake) }

func conformanceOfDumps(t *testing.T, start starter) {
	for _, c := range conversations(t, dumps) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			newSpeaker(dial(t, start(t, c.args...)), "key").hold(t, c)
		})
	}
}

// A line of a key ends in LF, the last one in CR LF.
func dumpLineEnds(t *testing.T, start starter) {
	s := newSpeaker(dial(t, start(t)), "k")
	s.follow(t, "> ms k 1")
	s.follow(t, "> x")
	s.follow(t, "< HD")
	s.follow(t, "> lru_crawler metadump hash")
	for _, want := range []string{"\n", "END\r\n"} {
		got, err := s.in.ReadString('\n')
		if err != nil || !strings.HasSuffix(got, want) || strings.HasSuffix(got, "\r\n") != strings.HasPrefix(want, "END") {
			t.Errorf("%q, %v; want an end of %q", got, err, want)
		}
	}
}

// manyItems are more than sockets hold, 16 MB of lines: a dump of them waits for its reader.
const manyItems = 20_000

// fillMany writes them, a quiet set each. A colon has three bytes in a dump.
func fillMany(t *testing.T, addr string) {
	t.Helper()
	s := newSpeaker(dial(t, addr), "k")
	var out bytes.Buffer
	for i := range manyItems {
		fmt.Fprintf(&out, "ms %s%d 1 q\r\nx\r\n", strings.Repeat(":", 240), i)
	}
	if _, err := s.conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	s.follow(t, "> mn")
	s.follow(t, "< MN")
}

// pausedDump begins a dump whose reader pauses.
func pausedDump(t *testing.T, addr string) *speaker {
	t.Helper()
	conn := dial(t, addr)
	if err := conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	s := newSpeaker(conn, "k")
	s.follow(t, "> lru_crawler metadump hash")
	if _, err := s.in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return s
}

// rest reads a dump to its end and returns how many lines it had.
func (s *speaker) rest(t *testing.T) (lines int) {
	t.Helper()
	for {
		s.conn.SetReadDeadline(time.Now().Add(answerDeadline))
		line, err := s.in.ReadSlice('\n')
		switch {
		case err != nil:
			t.Fatal(err)
		case string(line) == "END\r\n":
			return lines
		case !bytes.HasPrefix(line, []byte("key=")):
			t.Fatalf("%q within a dump", line)
		}
		lines++
	}
}

// While a dump is read, a second one is told so at once.
func oneDumpAtATime(t *testing.T, start starter) {
	addr := start(t)
	fillMany(t, addr)
	first := pausedDump(t, addr)
	done := make(chan int)
	second := newSpeaker(dial(t, addr), "k")
	go func() { done <- first.rest(t) }()
	second.follow(t, "> lru_crawler metadump hash")
	second.follow(t, "< BUSY currently processing crawler request")
	if lines := 1 + <-done; lines != manyItems {
		t.Errorf("%d lines, want %d", lines, manyItems)
	}
	if lines := pausedDump(t, addr).rest(t) + 1; lines != manyItems {
		t.Errorf("another one has %d lines, want %d", lines, manyItems)
	}
}

// While the reader of a dump pauses, others are served. A second dump hangs, and with it a quarter of all connections, until the first
// one's reader goes on.
func aSecondDumpHangs(t *testing.T, start starter) {
	addr := start(t)
	fillMany(t, addr)
	first := pausedDump(t, addr)
	var others []*speaker
	for range 2 * workers {
		others = append(others, newSpeaker(dial(t, addr), "k"))
	}
	for _, s := range others {
		s.follow(t, "> mn")
		s.follow(t, "< MN")
	}
	if got := statsOf(t, others[0], "stats")["lru_crawler_running"]; got != "1" {
		t.Errorf("while a dump waits: lru_crawler_running %s", got)
	}
	second := newSpeaker(dial(t, addr), "k")
	for end := time.Now().Add(answerDeadline); ; {
		second.follow(t, "> lru_crawler metadump hash")
		if second.quiet(t) {
			var hang []*speaker
			for _, s := range others {
				if s.follow(t, "> mn"); s.quiet(t) {
					hang = append(hang, s)
				} else {
					s.follow(t, "< MN")
				}
			}
			if second.quiet(t) && len(hang) == len(others)/workers {
				break
			}
			for _, s := range hang {
				s.follow(t, "< MN")
			}
		}
		second.follow(t, "< BUSY currently processing crawler request") // the sockets took some more of the first one
		if time.Now().After(end) {
			t.Fatal("no thread hangs, though there are two dumps, and the first one's reader pauses")
		}
	}
	first.rest(t)
	second.follow(t, "< BUSY currently processing crawler request")
}

// While the reader of a dump pauses, the part of the hash table whose items are being written is locked: each client that asks for a key
// there hangs, until the reader goes on. (From 1.6.19 on memcached writes without that lock.)
func aPausedDumpHangsClients(t *testing.T, start starter) {
	addr := start(t)
	fillMany(t, addr)
	first := pausedDump(t, addr)
	others := []*speaker{newSpeaker(dial(t, addr), "k"), newSpeaker(dial(t, addr), "k"), newSpeaker(dial(t, addr), "k"), newSpeaker(dial(t, addr), "k")}
	hangs := func() bool {
		for i := range manyItems { // some of them of that part
			s := others[i%len(others)]
			fmt.Fprintf(s.conn, "mg %s%d k\r\nmn\r\n", strings.Repeat(":", 240), i)
			for line := ""; line != "MN\r\n"; {
				s.conn.SetReadDeadline(time.Now().Add(silence))
				var err error
				if line, err = s.in.ReadString('\n'); errors.Is(err, os.ErrDeadlineExceeded) {
					return true
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
		return false
	}
	hung := false
	for range 2 { // the first time the sockets may still have taken some
		hung = hung || hangs()
	}
	if !hung {
		t.Error("nobody hangs")
	}
	first.rest(t)
	newSpeaker(dial(t, addr), "k").follow(t, "> mn")
}

// silence is for how long nothing comes where something hangs.
const silence = 300 * time.Millisecond

// quiet says whether nothing comes.
func (s *speaker) quiet(t *testing.T) bool {
	t.Helper()
	s.conn.SetReadDeadline(time.Now().Add(silence))
	_, err := s.in.Peek(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err != nil
}

// A dump whose client goes away ends, and the next may begin.
func aDumpEndsWithItsClient(t *testing.T, start starter) {
	addr := start(t)
	fillMany(t, addr)
	first := pausedDump(t, addr)
	other := newSpeaker(dial(t, addr), "k")
	first.conn.Close()
	for end := time.Now().Add(answerDeadline); statsOf(t, other, "stats")["lru_crawler_running"] != "0"; {
		if time.Now().After(end) {
			t.Fatal("the crawler is still at work")
		}
		<-time.After(10 * time.Millisecond)
	}
	if lines := pausedDump(t, addr).rest(t) + 1; lines != manyItems {
		t.Errorf("the next one has %d lines, want %d", lines, manyItems)
	}
}

// What is asked when END was seen is answered.
func onItGoesAfterADump(t *testing.T, start starter) {
	s := newSpeaker(dial(t, start(t)), "k")
	for range 100 {
		s.follow(t, "> lru_crawler metadump hash")
		s.follow(t, "< END")
		s.follow(t, "> version")
		s.follow(t, "< VERSION 1.6.{patch}")
	}
}

// statsOf asks for stats and returns them by name.
func statsOf(t *testing.T, s *speaker, command string) map[string]string {
	t.Helper()
	s.follow(t, "> "+command)
	values := make(map[string]string)
	for {
		words := strings.SplitN(s.read(t, "END"), " ", 3)
		switch {
		case words[0] == "END":
			return values
		case words[0] != "STAT" || len(words) != 3:
			t.Fatalf("%q in stats", words)
		}
		values[words[1]] = words[2]
	}
}

func countersCount(t *testing.T, start starter) {
	addr := start(t)
	s := newSpeaker(dial(t, addr), "k")
	for _, line := range []string{"> ms here 1", "> x", "< HD", "> ms stale 1", "> x", "< HD", "> md stale I T30", "< HD"} {
		s.follow(t, line)
	}
	type counts struct{ get, misses, set, items int }
	read := func() counts {
		values := statsOf(t, s, "stats")
		var n [4]int
		for i, name := range []string{"cmd_get", "get_misses", "cmd_set", "curr_items"} {
			var err error
			if n[i], err = strconv.Atoi(values[name]); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		return counts{n[0], n[1], n[2], n[3]}
	}
	for _, tc := range []struct {
		say  string // followed by an mn, whose MN ends the answer
		want counts
	}{
		{"get here", counts{get: 1}},
		{"get none", counts{get: 1, misses: 1}},
		{"gets here none none2", counts{get: 3, misses: 2}},
		{"mg here v", counts{get: 1}},
		{"mg none v q", counts{get: 1, misses: 1}},
		{"mg lease v N30", counts{get: 1, items: 1}}, // who wins a lease, and fills it, shows in cmd_set alone
		{"mg lease v N30", counts{get: 1}},
		{"mg stale v", counts{get: 1}},
		{"ms a 1\r\nx", counts{set: 1, items: 1}},
		{"ms a 1 q\r\nx", counts{set: 1}},
		{"ms a 1 C99999999\r\nx", counts{set: 1}}, // refused
		{"ms none 1 C5\r\nx", counts{set: 1}},
		{"ms a 1 ME\r\nx", counts{set: 1}},
		{"ms none 1 MR\r\nx", counts{set: 1}},
		{"set a 0 0 1\r\nx", counts{set: 1}},
		{"add a 0 0 1\r\nx", counts{set: 1}},
		{"cas a 0 0 1 99999999\r\nx", counts{set: 1}},
		{"cas none 0 0 1 99999999\r\nx", counts{set: 1}},
		{"ms bad abc", counts{}},
		{"md a", counts{items: -1}},
		{"md none", counts{}},
		{"md here I T30", counts{}},
		{"delete none", counts{}},
		{"version", counts{}},
		{"lru_crawler metadump hash", counts{}},
	} {
		before := read()
		s.follow(t, "> "+tc.say)
		if strings.HasPrefix(tc.say, "lru_crawler") { // nothing goes behind it
			s.rest(t)
		}
		s.follow(t, "> mn")
		for s.read(t, "MN") != "MN" {
		}
		after := read()
		if got := (counts{after.get - before.get, after.misses - before.misses, after.set - before.set, after.items - before.items}); got != tc.want {
			t.Errorf("%q counted %+v, want %+v", tc.say, got, tc.want)
		}
	}
	if a, b := identity(t, s), identity(t, newSpeaker(dial(t, addr), "k")); a != b {
		t.Errorf("the same process is %v, then %v", a, b)
	}
	if a, b := identity(t, s), identity(t, newSpeaker(dial(t, start(t)), "k")); a == b {
		t.Errorf("another process is %v too", a)
	}
}

// identity is what tells one process from another: its number, and when it was started.
func identity(t *testing.T, s *speaker) [2]int {
	t.Helper()
	values := statsOf(t, s, "stats")
	var n [3]int
	for i, name := range []string{"pid", "time", "uptime"} {
		var err error
		if n[i], err = strconv.Atoi(values[name]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return [2]int{n[0], n[1] - n[2]}
}

func settingsShow(t *testing.T, start starter) {
	for _, tc := range []struct {
		args                string
		cas, crawler, dumps string
	}{
		{"", "yes", "yes", "yes"},
		{"-C", "no", "yes", "yes"},
		{"-X", "yes", "yes", "no"},
		{"-o no_lru_crawler", "yes", "no", "yes"},
	} {
		s := newSpeaker(dial(t, start(t, strings.Fields(tc.args)...)), "k")
		got := statsOf(t, s, "stats settings")
		if got["cas_enabled"] != tc.cas || got["lru_crawler"] != tc.crawler || got["dump_enabled"] != tc.dumps || got["lru_crawler_sleep"] != "100" {
			t.Errorf("%q: %s, %s, %s, sleeps %s", tc.args, got["cas_enabled"], got["lru_crawler"], got["dump_enabled"], got["lru_crawler_sleep"])
		}
		if got := statsOf(t, s, "stats"); got["hash_power_level"] != "16" || got["hash_is_expanding"] != "0" || got["lru_crawler_running"] != map[string]string{"yes": "0"}[tc.crawler] {
			t.Errorf("%q: crawler %q, 2^%s buckets", tc.args, got["lru_crawler_running"], got["hash_power_level"])
		}
	}
}

func TestAnArgumentThatIsNotKnown(t *testing.T) {
	for _, args := range [][]string{{"-c", "20"}, {"-o"}, {"-o", "modern"}} {
		if s, err := Listen("127.0.0.1:0", args...); err == nil {
			s.Close()
			t.Errorf("%q was taken", args)
		}
	}
}

// An intercept sees each line of a dump.
func TestInterceptWithinADump(t *testing.T) {
	for name, tc := range map[string]struct {
		at    Reply  // what the second line of five meets
		lines int    // that are there in the end
		last  string // the last bytes
	}{
		"served":      {Reply{}, 5, "END\r\n"},
		"left out":    {Reply{Then: Skip}, 4, "END\r\n"},
		"junk before": {Reply{Text: "junk\n"}, 6, "END\r\n"},
		"cut":         {Reply{Text: "key=us", Then: Hangup}, 1, "\nkey=us"},
	} {
		t.Run(name, func(t *testing.T) {
			node := Start(t)
			for i := range 5 {
				node.Set(fmt.Sprint("user:", i), "x")
			}
			seen := 0
			node.Intercept(func(_ int, line string) Reply {
				if strings.HasPrefix(line, "key=") {
					if seen++; seen == 2 {
						return tc.at
					}
				}
				return Reply{}
			})
			conn := dial(t, node.Addr())
			fmt.Fprint(conn, "lru_crawler metadump hash\r\nquit\r\n")
			var got bytes.Buffer
			bufio.NewReader(conn).WriteTo(&got)
			if text := got.String(); !strings.HasSuffix(text, tc.last) || strings.Count(strings.TrimSuffix(text, "END\r\n"), "\n") != tc.lines {
				t.Errorf("%q; want %d lines and %q", text, tc.lines, tc.last)
			}
			if len(statsOf(t, newSpeaker(dial(t, node.Addr()), "k"), "stats")) == 0 {
				t.Error("no stats")
			}
		})
	}
}
