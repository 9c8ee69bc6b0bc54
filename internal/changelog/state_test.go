package changelog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openState(t *testing.T, c *changelogtest.Cluster) *changelog.StateStore {
	t.Helper()
	s, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s *changelog.StateStore) *changelog.State {
	t.Helper()
	st, err := s.Load(t.Context())
	must(t, err)
	return st
}

// A takeover reads the whole topic, where each record is a batch of its own: to unpack each took longer than all the rest.
func TestStateIsNotCompressed(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	must(t, s.Put(t.Context(), "process/a", []byte(strings.Repeat("as good as it gets ", 1000))))
	for _, r := range c.Records(t, c.Names.State) {
		if n := r.Attrs.CompressionType(); n != 0 {
			t.Errorf("compression %d", n)
		}
	}
}

func TestStateKeepsTheLastValueOfAKey(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	for _, v := range []string{"1", "2", "3"} {
		must(t, s.Put(t.Context(), "process/a", []byte(v)))
		must(t, s.Put(t.Context(), "process/b", []byte("b"+v)))
		must(t, s.Put(t.Context(), "ring/7", []byte("r"+v)))
	}
	must(t, s.Remove(t.Context(), "process/b"))

	got := map[string]string{}
	for k, e := range load(t, s).Under("process") {
		got[k] = string(e.Value)
	}
	if d := cmp.Diff(map[string]string{"process/a": "3"}, got); d != "" {
		t.Error(d)
	}
	for key, want := range map[string]string{"ring/7": "r3", "process/a": "3", "process/b": "", "process/c": ""} {
		v, found, err := s.Get(t.Context(), key)
		if err != nil || string(v) != want || found != (want != "") {
			t.Errorf("Get(%s) = %q, %v, %v", key, v, found, err)
		}
	}
}

// The story of a paused feeder: generation 2 took over, then generation 1 wakes and writes an older position, last.
func TestHighestGenerationWinsWhoeverWritesLast(t *testing.T) {
	c := changelogtest.Start(t)
	old, successor := openState(t, c), openState(t, c)
	ctx := t.Context()

	p, err := load(t, old).LoadPosition("shop")
	if err != nil || p.Found || p.Generation != 0 {
		t.Fatalf("a new source: %+v, %v", p, err)
	}
	must(t, old.PutPosition(ctx, "shop", 1, cdc.Position{LSN: "0/10"}))
	must(t, old.PutPosition(ctx, "shop2", 9, cdc.Position{LSN: "0/99"})) // another source, not a prefix match

	p, err = load(t, successor).LoadPosition("shop")
	must(t, err)
	if p.Generation != 1 || p.Position.LSN != "0/10" || len(p.Stale) != 0 {
		t.Fatalf("the successor sees %+v", p)
	}
	must(t, successor.PutPosition(ctx, "shop", 2, cdc.Position{LSN: "0/20"}))
	must(t, successor.Remove(ctx, changelog.PositionKey("shop", 1)))
	must(t, old.PutPosition(ctx, "shop", 1, cdc.Position{LSN: "0/11"}))

	p, err = load(t, successor).LoadPosition("shop")
	must(t, err)
	if age := time.Since(p.Saved); age < 0 || age > time.Minute {
		t.Errorf("saved %s ago", age)
	}
	p.Saved = time.Time{}
	want := changelog.SavedPosition{Position: cdc.Position{LSN: "0/20"}, Generation: 2, Found: true, Stale: []string{"position/shop/1"}}
	if d := cmp.Diff(want, p); d != "" {
		t.Error(d)
	}
}

func TestGenerationsAreComparedAsNumbers(t *testing.T) {
	s := openState(t, changelogtest.Start(t))
	for g := int64(1); g <= 11; g++ {
		must(t, s.PutPosition(t.Context(), "shop", g, cdc.Position{GTIDSet: "u:1-5", Pos: uint64(g)}))
	}
	p, err := load(t, s).LoadPosition("shop")
	must(t, err)
	if p.Generation != 11 || p.Position.Pos != 11 || len(p.Stale) != 10 {
		t.Errorf("%+v", p)
	}
}

func TestAnUnreadablePositionIsAnErrorAndNotAFreshStart(t *testing.T) {
	for name, value := range map[string]string{
		"a newer version":      `{"v":2,"source":"shop","generation":3,"position":{"lsn":"0/1"}}`,
		"an unknown field":     `{"v":1,"source":"shop","generation":3,"position":{"lsn":"0/1"},"extra":1}`,
		"no JSON":              `lsn=0/1`,
		"an empty position":    `{"v":1,"source":"shop","generation":3,"position":{},"saved":"2026-11-30T10:00:00Z"}`,
		"somebody else's":      `{"v":1,"source":"orders","generation":4,"position":{"lsn":"0/1"},"saved":"2026-11-30T10:00:00Z"}`,
		"something after it":   `{"v":1,"source":"shop","generation":3,"position":{"lsn":"0/1"},"saved":"2026-11-30T10:00:00Z"} {}`,
		"an empty value":       ``,
		"generation mismatch":  `{"v":1,"source":"shop","generation":4,"position":{"lsn":"0/1"},"saved":"2026-11-30T10:00:00Z"}`,
		"generation below one": `{"v":1,"source":"shop","generation":0,"position":{"lsn":"0/1"},"saved":"2026-11-30T10:00:00Z"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := openState(t, changelogtest.Start(t))
			must(t, s.PutPosition(t.Context(), "shop", 1, cdc.Position{LSN: "0/1"}))
			must(t, s.Put(t.Context(), "position/shop/3", []byte(value)))
			_, err := load(t, s).LoadPosition("shop")
			var bad *changelog.RecordError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v", err)
			}
			if text := err.Error(); !strings.Contains(text, "position/shop/3") || !strings.Contains(text, "partition") || !strings.Contains(text, "offset") {
				t.Errorf("the error does not say where: %s", text)
			}
		})
	}
}

func TestStateKeys(t *testing.T) {
	for _, parts := range [][]string{{"position", "shop", "1"}, {"a/b", "c%d", ""}, {"ü", "x y"}} {
		got, err := changelog.SplitStateKey(changelog.StateKey(parts...))
		if err != nil || !cmp.Equal(parts, got) {
			t.Errorf("%q came back as %q, %v", parts, got, err)
		}
	}
	if k := changelog.StateKey("a/b", "c"); k != "a%2Fb/c" {
		t.Error(k)
	}
}

func FuzzDecodePosition(f *testing.F) {
	f.Add([]byte(`{"v":1,"source":"shop","generation":3,"position":{"lsn":"0/1"},"saved":"2026-11-30T10:00:00Z"}`))
	f.Add([]byte(`{"v":9}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := changelog.DecodePosition(data); err == nil && p.IsZero() {
			t.Error("an empty position was taken for one")
		}
	})
}

func TestLoadWaitsNoLongerThanItsContext(t *testing.T) {
	c := changelogtest.Start(t)
	s := openState(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
