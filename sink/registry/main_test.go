package registry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// record is a ring of one shard.
func record(epoch int) string {
	return fmt.Sprintf(`{"epoch": %d, "kind": "points160", "shards": [{"id": "s0", "primary": {"addr": "a:1"}}]}`, epoch)
}

// start runs w until the test ends.
func start(t *testing.T, w Watcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	})
}

// await returns the first view that holds.
func await(t *testing.T, w Watcher, what string, holds func(*View) bool) *View {
	t.Helper()
	deadline := time.After(patience)
	for {
		changed := w.Changed()
		if v := w.View(); v != nil && holds(v) {
			return v
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: not seen; the view is %+v", what, w.View())
		}
	}
}

func awaitEpoch(t *testing.T, w Watcher, epoch int64) *View {
	t.Helper()
	return await(t, w, fmt.Sprint("epoch ", epoch), func(v *View) bool { return v.Topology.Epoch() == epoch })
}

// reports is a log whose lines can be awaited.
type reports chan string

func newReports() (reports, *slog.Logger) {
	r := make(reports, 1000) // more than any test logs
	return r, slog.New(slog.NewTextHandler(r, nil))
}

func (r reports) Write(line []byte) (int, error) {
	r <- string(line)
	return len(line), nil
}

func (r reports) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	var seen []string
	for {
		select {
		case line := <-r:
			if strings.Contains(line, text) {
				return
			}
			seen = append(seen, line)
		case <-deadline:
			t.Fatalf("%q was not reported; seen:\n%s", text, strings.Join(seen, ""))
		}
	}
}

// none fails if a line that holds text was reported and not awaited.
func (r reports) none(t *testing.T, text string) {
	t.Helper()
	for len(r) > 0 {
		if line := <-r; strings.Contains(line, text) {
			t.Errorf("reported: %s", line)
		}
	}
}
