//go:build bench

package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/test/integration/harness"
)

// ear hears what is said on the status topic.
type ear struct {
	mu    sync.Mutex // guards heard
	heard []replay.Record
}

// listen hears from the topic's beginning until the test ends.
func listen(t *testing.T, p *harness.Pipeline) *ear {
	t.Helper()
	e := &ear{}
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka), kgo.ConsumeTopics(changelog.NamesFor(p.Config.Kafka.TopicPrefix).Status),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	stop := background(func(ctx context.Context) {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				if said, err := replay.DecodeStatus(r.Value); err == nil { // others are no concern of these figures
					e.mu.Lock()
					e.heard = append(e.heard, said)
					e.mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(func() {
		stop()
		cl.Close()
	})
	return e
}

// each calls f with all that was heard, in order.
func (e *ear) each(f func(replay.Record)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.heard {
		f(r)
	}
}

// profile has perf(1) note where a process spends its time, until stop is called, in a file of the folder that BENCH_PERF names, and shows the command that reads it. Without that
// it does nothing.
func profile(t *testing.T, name string, pid int) (stop func()) {
	t.Helper()
	dir := os.Getenv("BENCH_PERF")
	if dir == "" {
		return func() {}
	}
	file := filepath.Join(dir, name+".perf")
	cmd := exec.Command("perf", "record", "-q", "-F", "499", "-g", "-o", file, "-p", strconv.Itoa(pid))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting perf (BENCH_PERF asks for it): %v", err)
	}
	return func() {
		t.Helper()
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait() //nolint:errcheck // it ends with the signal's code
		t.Logf("where its time went: perf report -i %s --no-children", file)
	}
}
