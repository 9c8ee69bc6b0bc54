package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"invalidator/internal/ui"
	"invalidator/mapping"
	"invalidator/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// embeddedIn plays the embedded demo in temporary files of the test's own and returns what it told.
func embeddedIn(t *testing.T, ctx context.Context, o Options) (string, error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var story bytes.Buffer
	o.Embedded, o.Updates = true, 20
	if o.Out == nil {
		o.Out = &story
	} else {
		o.Out = io.MultiWriter(&story, o.Out)
	}
	err := Run(ctx, o)
	left, globErr := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if globErr != nil {
		t.Fatal(globErr)
	}
	for _, f := range left {
		if err == nil || !strings.HasSuffix(f, ".log") {
			t.Errorf("the demo left %s behind", f)
		}
	}
	return story.String(), err
}

func TestEmbedded(t *testing.T) {
	story, err := embeddedIn(t, t.Context(), Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, story)
	}
	for _, s := range append(steps, resizing) {
		if !strings.Contains(story, s.title) {
			t.Errorf("step %q is not told", s.title)
		}
	}
	if !strings.Contains(story, "passed: no copy is stale") {
		t.Errorf("the end is missing:\n%s", story)
	}
	for line := range strings.Lines(story) {
		if n := len([]rune(line)) - 1; n > ui.Width && !strings.Contains(line, os.TempDir()) { // a test's folder has a long name
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// deafness is the node whose deletes all workers leave out: the first that they meet.
type deafness struct {
	mu   sync.Mutex
	node string
}

func (d *deafness) to(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.node == "" {
		d.node = node
	}
	return d.node == node
}

// deafDeleter says of every delete that it is done, and leaves out some.
type deafDeleter struct {
	sink.Deleter
	deaf *deafness
}

func (d deafDeleter) Delete(ctx context.Context, lane sink.Lane, c sink.Copy, w sink.Waiter) error {
	if d.deaf.to(c.Node) {
		w.Acked(c, nil)
		return nil
	}
	return d.Deleter.Delete(ctx, lane, c, w)
}

// A worker that leaves out one node's deletes must fail the demo, by name: otherwise its passing proves nothing.
func TestADeafNodeFailsTheDemo(t *testing.T) {
	var deaf deafness
	story, err := embeddedIn(t, t.Context(), Options{wrap: func(d sink.Deleter) sink.Deleter { return deafDeleter{d, &deaf} }})
	if !errors.Is(err, ErrFailed) {
		t.Fatalf("error %v, want ErrFailed\n%s", err, story)
	}
	end := story[strings.Index(story, "At the end"):]
	if !strings.Contains(end, "FAILED") || !strings.Contains(end, "stale: user:") || !strings.Contains(end, deaf.node) {
		t.Errorf("the stale copies on %s are not told:\n%s", deaf.node, end)
	}
}

// cancelAt cancels when a text has been told.
type cancelAt struct {
	text   string
	cancel func()
}

func (c cancelAt) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		c.cancel()
	}
	return len(b), nil
}

func TestInterruptedItRemovesWhatItMade(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	story, err := embeddedIn(t, ctx, Options{Out: cancelAt{"3. A changed primary key", cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if !strings.Contains(story, "everything that the demo made is removed again") {
		t.Errorf("the end is missing:\n%s", story)
	}
}

func TestMappingsAgreeWithTheReaders(t *testing.T) {
	set, problems, err := mapping.Load("mappings")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	for _, r := range set.RunTests() {
		if !r.OK() {
			t.Error(r)
		}
	}
	g := newGenerator("mysql", "mysql", "x")
	for _, tab := range tables {
		c := change{tab, nil, tab.seed(7)}
		var got mapping.Result
		set.Keys(g.rowChange(c, 0, 0, testTime), &got)
		for i, key := range c.keys() {
			if i >= len(got.Keys) || got.Keys[i].Text != key || got.Keys[i].Template.Hot != declaredHot(key) {
				t.Errorf("readers of %s use %s with %d copies, the mappings give %v", tab.name, key, declaredHot(key), got.Keys)
			}
		}
	}
}

func TestServicesThatAreNotThere(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const nobody = "127.0.0.1:1"
	err := Run(t.Context(), Options{
		Out: io.Discard, Log: slog.New(slog.DiscardHandler),
		Services: Services{nobody, nobody, nobody, nobody, nobody, [4]string{nobody, nobody, nobody, nobody}},
	})
	if err == nil || !strings.Contains(err.Error(), "./dev up") {
		t.Errorf("error %v, want one that says how to start the services", err)
	}
}
