package memcache

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// asker is a client that only asks: without Run.
func asker(opts Options) *Client {
	setDefault(&opts.Timeout, 5*time.Second)
	return New(opts, discard)
}

func TestStats(t *testing.T) {
	node := memcachetest.Start(t)
	statsTell(t, node.Addr(), memcachetest.Start(t, "-C").Addr())
	if st, err := asker(Options{}).Stats(t.Context(), node.Addr()); err != nil || st.Start > time.Now().Unix() || st.Start < time.Now().Add(-time.Hour).Unix() {
		t.Errorf("%+v, %v", st, err)
	}
}

// statsTell reads the figures before and after a few commands, and those of a node without CAS values.
func statsTell(t *testing.T, addr, noCAS string) {
	for _, opts := range []Options{{}, {Protocol: Classic}} {
		c, p := asker(opts), newPerson(t, addr)
		before, err := c.Stats(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		p.ask("ms k 1\r\nx")
		p.ask("mg k s")
		p.ask("mg none s")
		p.ask("mg none2 s")
		after, err := c.Stats(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		got := [4]uint64{after.CmdGet - before.CmdGet, after.GetMisses - before.GetMisses, after.CmdSet - before.CmdSet, after.CurrItems - before.CurrItems}
		if want := [4]uint64{3, 2, 1, 1}; got != want {
			t.Errorf("gets, misses, sets, items: %v, want %v", got, want)
		}
		if after.Pid != before.Pid || after.Pid == 0 || after.Start != before.Start || after.Start == 0 || !after.CAS {
			t.Errorf("first %+v, then %+v", before, after)
		}
		p.ask("md k")
		other, err := c.Stats(t.Context(), noCAS)
		if err != nil || other.CAS || other.Pid == after.Pid {
			t.Errorf("without CAS: %+v, %v; the other one: %+v", other, err, after)
		}
	}
}

// answering replaces what a node answers to the first command that begins so; the rest of the line's answers go on.
func answering(t *testing.T, command string, r memcachetest.Reply) *memcachetest.Server {
	t.Helper()
	node := memcachetest.Start(t)
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if line == command || strings.HasPrefix(line, command+" ") && command != "stats" {
			return r
		}
		return memcachetest.Reply{}
	})
	return node
}

func TestFaultsOfStats(t *testing.T) {
	skip := func(text string) memcachetest.Reply {
		return memcachetest.Reply{Text: text, Then: memcachetest.Skip}
	}
	for name, tc := range map[string]struct {
		reply  memcachetest.Reply
		never  bool // a *sink.NoDumpError
		reason string
	}{
		"hangs up":           {memcachetest.Reply{Then: memcachetest.Hangup}, true, "hangs up on `stats`"},
		"ERROR":              {skip("ERROR\r\n"), true, "does not know `stats`"},
		"other figures":      {skip("STAT mcrouter_version 1\r\nSTAT pid 12\r\nEND\r\n"), true, "its stats have no lru_crawler_running"},
		"no figures":         {skip("END\r\n"), true, "no lru_crawler_running"},
		"SERVER_ERROR":       {skip("SERVER_ERROR out of memory\r\n"), false, `"SERVER_ERROR out of memory"`},
		"unauthenticated":    {skip("CLIENT_ERROR unauthenticated\r\n"), false, "CLIENT_ERROR unauthenticated"},
		"no number":          {skip("STAT pid many\r\n"), false, "its pid"},
		"below zero":         {skip("STAT cmd_set -1\r\n"), false, "its cmd_set"},
		"more than there is": {skip("STAT get_misses 18446744073709551616\r\n"), false, "its get_misses"},
		"an ERROR later":     {skip("STAT pid 1\r\nERROR\r\n"), false, `"ERROR"`},
		"cut off":            {memcachetest.Reply{Text: "STAT pid 1\r\nSTAT ti", Then: memcachetest.Hangup}, false, "closed"},
		"silence":            {memcachetest.Reply{Then: memcachetest.Stall}, false, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			node := answering(t, "stats", tc.reply)
			c := asker(Options{Timeout: 200 * time.Millisecond})
			for what, err := range map[string]error{
				"Stats": func() error { _, err := c.Stats(t.Context(), node.Addr()); return err }(),
				"Dump":  c.Dump(t.Context(), node.Addr(), func([]byte, uint64) { t.Error("a key") }),
			} {
				var never *sink.NoDumpError
				if errors.As(err, &never) != tc.never || never != nil && never.Node != node.Addr() || !strings.Contains(errText(err), tc.reason) || !strings.Contains(errText(err), node.Addr()) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if open, _ := node.Conns(); tc.reply.Then != memcachetest.Stall {
				eventually(t, "its connections are closed", func() bool { open, _ = node.Conns(); return open == 0 })
			}
		})
	}
}

// What follows its figures would be taken for the next answer.
func TestSomethingBehindTheStats(t *testing.T) {
	node := answering(t, "stats settings", memcachetest.Reply{Text: "STAT cas_enabled yes\r\nEND\r\nEND\r\n", Then: memcachetest.Skip})
	if _, err := asker(Options{}).Stats(t.Context(), node.Addr()); !strings.Contains(errText(err), `"END\r\n" came behind them`) {
		t.Errorf("got %v", err)
	}
}

// A node that hangs up since it is restarted is asked again; one that is away is no proxy.
func TestStatsOfANodeThatIsRestarted(t *testing.T) {
	node := memcachetest.Start(t)
	asked := 0
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if line == "stats" {
			if asked++; asked == 1 {
				return memcachetest.Reply{Then: memcachetest.Hangup}
			}
		}
		return memcachetest.Reply{}
	})
	if st, err := asker(Options{}).Stats(t.Context(), node.Addr()); err != nil || st.Pid == 0 {
		t.Errorf("%+v, %v", st, err)
	}
	node.Intercept(func(int, string) memcachetest.Reply { return memcachetest.Reply{Then: memcachetest.Hangup} })
	var never *sink.NoDumpError
	if _, err := asker(Options{}).Stats(t.Context(), node.Addr()); err == nil || errors.As(err, &never) {
		t.Errorf("one that hangs up on everything: %v", err)
	}
	node.Close()
	if _, err := asker(Options{}).Stats(t.Context(), node.Addr()); err == nil || errors.As(err, &never) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("one that is away: %v", err)
	}
}

func TestAskingEndsWithItsContext(t *testing.T) {
	node := memcachetest.Start(t)
	asked := make(chan struct{}, 10)
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if line == "lru_crawler metadump hash" || strings.HasPrefix(line, "ms ") || line == "stats" {
			asked <- struct{}{}
			return memcachetest.Reply{Then: memcachetest.Stall}
		}
		return memcachetest.Reply{}
	})
	c := asker(Options{Timeout: time.Hour})
	for name, ask := range map[string]func(context.Context) error{
		"Stats": func(ctx context.Context) error { _, err := c.Stats(ctx, node.Addr()); return err },
		"Mark":  func(ctx context.Context) error { _, err := c.Mark(ctx, node.Addr(), "mark"); return err },
		"Dump":  func(ctx context.Context) error { return c.Dump(ctx, node.Addr(), func([]byte, uint64) {}) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- ask(ctx) }()
		<-asked
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), node.Addr()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMark(t *testing.T) {
	marks(t, memcachetest.Start(t).Addr(), memcachetest.Start(t, "-C").Addr())
}

// marks parts what was written before from what is written after.
func marks(t *testing.T, addr, noCAS string) {
	c, p := asker(Options{}), newPerson(t, addr)
	before := p.write("before", "x")
	mark, err := c.Mark(t.Context(), addr, "invalidator:mark")
	if err != nil {
		t.Fatal(err)
	}
	after := p.write("after", "x")
	if before >= mark || mark >= after {
		t.Errorf("before %d, mark %d, after %d", before, mark, after)
	}
	if got := p.ask("mg invalidator:mark s t c"); !strings.HasPrefix(got, "HD s0 t") || got == "HD s0 t-1" || number(t, cas(t, got)) != mark {
		t.Errorf("the mark is %q", got)
	}
	if got, err := c.Mark(t.Context(), noCAS, "invalidator:mark"); got != 0 || err != nil {
		t.Errorf("where there are no CAS values: %d, %v", got, err)
	}
	if got, err := asker(Options{Protocol: Classic}).Mark(t.Context(), addr, "k"); got != 0 || err != nil || p.ask("mg k") != "EN" {
		t.Errorf("under the classic protocol: %d, %v", got, err)
	}
}

func TestFaultsOfMark(t *testing.T) {
	for name, tc := range map[string]struct {
		reply  memcachetest.Reply
		reason string // part of the error; empty: there is none, and no CAS value
	}{
		"no meta":       {memcachetest.Reply{Text: "ERROR\r\n", Then: memcachetest.Skip}, ""},
		"out of memory": {memcachetest.Reply{Text: "SERVER_ERROR out of memory storing object\r\n", Then: memcachetest.Skip}, "SERVER_ERROR out of memory"},
		"not stored":    {memcachetest.Reply{Text: "NS\r\n", Then: memcachetest.Skip}, `"NS"`},
		"no number":     {memcachetest.Reply{Text: "HD cx\r\n", Then: memcachetest.Skip}, `"HD cx"`},
		"no CAS value":  {memcachetest.Reply{Text: "HD\r\n", Then: memcachetest.Skip}, `"HD"`},
		"cut off":       {memcachetest.Reply{Text: "HD c1", Then: memcachetest.Hangup}, "closed"},
		"silence":       {memcachetest.Reply{Then: memcachetest.Stall}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			node := answering(t, "ms", tc.reply)
			got, err := asker(Options{Timeout: 200 * time.Millisecond}).Mark(t.Context(), node.Addr(), "mark")
			if got != 0 || (err == nil) != (tc.reason == "") || !strings.Contains(errText(err), tc.reason) || err != nil && !strings.Contains(err.Error(), node.Addr()) {
				t.Errorf("%d, %v", got, err)
			}
		})
	}
	for _, key := range []string{"", "a b", strings.Repeat("k", 251), "k\r\nflush_all"} {
		var bad *sink.KeyError
		if _, err := asker(Options{}).Mark(t.Context(), "nowhere:1", key); !errors.As(err, &bad) {
			t.Errorf("%q: %v", key, err)
		}
	}
	node := memcachetest.Start(t)
	node.Close()
	if _, err := asker(Options{}).Mark(t.Context(), node.Addr(), "k"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("away: %v", err)
	}
}

// What is asked goes through TLS and says the token, as deletes do.
func TestAskingSaysTheToken(t *testing.T) {
	node := memcachetest.Start(t)
	node.RequireToken("invalidator", "secret")
	node.Set("k", "v")
	for password, want := range map[string]error{"secret": nil, "wrong": ErrAuth} {
		c := asker(Options{User: "invalidator", Password: func() string { return password }})
		_, statsErr := c.Stats(t.Context(), node.Addr())
		_, markErr := c.Mark(t.Context(), node.Addr(), "mark")
		dumpErr := c.Dump(t.Context(), node.Addr(), func([]byte, uint64) {})
		for _, err := range []error{statsErr, markErr, dumpErr} {
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s: %v, want %v", password, err, want)
			}
		}
	}
	var never *sink.NoDumpError
	if _, err := asker(Options{}).Stats(t.Context(), node.Addr()); err == nil || errors.As(err, &never) || !strings.Contains(err.Error(), "unauthenticated") {
		t.Errorf("without a token: %v", err)
	}
	if _, err := asker(Options{TLS: new(tls.Config)}).Stats(t.Context(), node.Addr()); err == nil || !strings.Contains(err.Error(), "connecting") {
		t.Errorf("TLS to a node without: %v", err)
	}
}
