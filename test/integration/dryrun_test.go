//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/test/integration/harness"
)

// silentNode is where a node would be: it counts who connects.
func silentNode(t *testing.T) (addr string, visits *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	visits = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), visits
}

// sum is a dry run's, as docs/DESIGN.md has it.
type sum struct {
	Kind                                         string
	Group                                        string
	Final                                        bool
	Changes, Keys, Copies, Parked, Gaps, Flushes int64
	Pools, Mappings, Nodes                       []struct {
		Name         string
		Keys, Copies int64
	}
}

// told are the samples and the last sum of a dry run.
func told(t *testing.T, p *harness.Process) (samples []string, last sum) {
	t.Helper()
	for line := range strings.Lines(p.Log()) {
		if !strings.HasPrefix(line, `{"kind":`) {
			continue
		}
		if strings.HasPrefix(line, `{"kind":"sample"`) {
			samples = append(samples, line)
			continue
		}
		var s sum
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		last = s
	}
	return samples, last
}

// A dry run beside a fleet counts what that would delete, in a group of its own. No node gets a connection, and what is the fleet's own stays as it is: its
// commits, its states, dead letters, requests.
func TestDryRunTouchesNothing(t *testing.T) {
	t.Parallel()
	a, visitsA := silentNode(t)
	b, visitsB := silentNode(t)
	nodes := harness.StartNodes(t, 2)
	l := newLone(t, nodes[0].Addr, nodes[1].Addr)
	worker := l.Work()
	l.change(0, 20)
	l.AwaitDone(l.topic)
	worker.Terminate()
	commits, err := l.Commits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := l.OwnRecords()
	keys, err := l.StateKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	// From here on the ring names nodes that nobody may speak to.
	l.Publish(recordOf(a, b))
	dry := harness.Start(t, "dry-run", "run", "--dry-run", "--json", "--from", "earliest", "--config", l.File)
	l.change(20, 60)
	l.Write(l.topic, `{"id":1}`, "no JSON") // a dead letter, for a worker
	harness.Await(t, "the dry run to be through", func() (bool, string) {
		_, s := told(t, dry)
		return s.Changes >= 60 && s.Parked == 1, fmt.Sprintf("%+v", s)
	})
	dry.Terminate()
	samples, s := told(t, dry)
	if !s.Final || s.Group != l.ID+".dry-run" || s.Changes != 60 || s.Keys != 60 || s.Parked != 1 || s.Gaps+s.Flushes != 0 ||
		len(s.Pools) != 1 || s.Pools[0].Name != "item" || s.Pools[0].Keys != 60 || len(s.Mappings) != 1 || s.Mappings[0].Name != "items/item" {
		t.Errorf("the last sum is %+v", s)
	}
	var onNodes int64
	for _, n := range s.Nodes {
		onNodes += n.Copies
	}
	// Today's ring, and the one that the fleet has seen: what is kept of that is the dry run's group's own, which never saw it.
	if onNodes != s.Copies || s.Copies != 60 {
		t.Errorf("%d copies on nodes, %d in all, want 60", onNodes, s.Copies)
	}
	if len(samples) == 0 || !strings.Contains(samples[0], `"pool":"item","key":"item:`) || !strings.Contains(samples[0], `"topic":"`+l.topic+`"`) {
		t.Errorf("samples: %q", samples)
	}

	if n := visitsA.Load() + visitsB.Load(); n != 0 {
		t.Errorf("nodes were connected to %d times", n)
	}
	after, err := l.Commits(t.Context())
	if d := cmp.Diff(commits, after); err != nil || d != "" {
		t.Errorf("the fleet's commits and states have changed: %v, %s", err, d)
	}
	if d := cmp.Diff(own, l.OwnRecords()); d != "" {
		t.Errorf("records were written: %s", d)
	}
	now, err := l.StateKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range now {
		parts := strings.Split(k, "/")
		if !slices.Contains(keys, k) && parts[0] != "process" && parts[1] != l.ID+".dry-run" {
			t.Errorf("the dry run wrote %s", k)
		}
	}

	// It goes on where it stopped.
	l.change(60, 65)
	dry = harness.Start(t, "dry-run", "run", "--dry-run", "--json", "--config", l.File)
	harness.Await(t, "the second dry run to be through", func() (bool, string) {
		_, s := told(t, dry)
		return s.Changes >= 5, fmt.Sprintf("%+v", s)
	})
	dry.Terminate()
	if _, s := told(t, dry); s.Changes != 5 || s.Parked != 0 {
		t.Errorf("it went on with %+v", s)
	}
}
