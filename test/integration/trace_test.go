//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

// traced is what trace --json says, as far as it is looked at here.
type traced struct {
	Copies []struct {
		Node, Key, Role string
		Today           bool
	}
	Changes []struct {
		Op, Topic, State   string
		Offset             int64
		Committed, Written time.Time
		Finished           bool
		Issued             []struct {
			Lane     string
			From, To time.Time
		}
		Owed []struct{ Kind, Name string }
		Late []struct {
			Node string
			Paid time.Time
		}
		Sent *struct{ By, Reason string }
	}
	Unknown []string
	Verdict struct{ Word, Text string }
}

func (l *lone) trace(t *testing.T, key string) (tr traced) {
	t.Helper()
	out, err := exec.Command(harness.Binary(t), "trace", key, "--since", "10m", "--json", "--config", l.File).Output()
	if err == nil {
		err = json.Unmarshal(out, &tr)
	}
	if err != nil {
		t.Fatalf("tracing %s: %v\n%s", key, err, out)
	}
	return tr
}

// awaitVerdict waits until a key's trace ends in this word.
func (l *lone) awaitVerdict(t *testing.T, key, word string) (tr traced) {
	t.Helper()
	harness.Await(t, key+" to be "+word, func() (bool, string) {
		tr = l.trace(t, key)
		return tr.Verdict.Word == word, tr.Verdict.Word + ": " + tr.Verdict.Text
	})
	return tr
}

// A key's story on real services: it is deleted; its node dies and owes it; the node is back and is paid; somebody deletes it by hand.
func TestTrace(t *testing.T) {
	t.Parallel()
	nodes := harness.StartNodes(t, 2)
	l := newLone(t, nodes[0].Addr, nodes[1].Addr)
	l.Work()
	l.change(1000, 1010)
	l.AwaitDone(l.topic) // the worker runs by now: what comes is issued at once
	began := time.Now()
	l.change(0, 40)
	l.AwaitDone(l.topic)
	key, lost := "", nodes[1]
	for i := range 40 {
		k := fmt.Sprintf("item:%d", i)
		if tr := l.trace(t, k); len(tr.Copies) == 1 && tr.Copies[0].Node == lost.Addr && tr.Copies[0].Key == k && tr.Copies[0].Role == "primary" {
			key = k
			break
		}
	}
	if key == "" {
		t.Fatal("no key is on the second node")
	}
	tr := l.trace(t, key)
	c := tr.Changes[0]
	if tr.Verdict.Word != "deleted" && tr.Verdict.Word != "late" || len(c.Late) != 0 { // where the machine is busy it may take more than a second
		t.Errorf("%+v", tr.Verdict)
	}
	if len(tr.Changes) != 1 || len(tr.Unknown) != 0 || c.Op != "u" || c.Topic != l.topic || !c.Finished || c.Committed.Before(began.Add(-time.Second)) || len(c.Issued) == 0 ||
		c.Issued[0].Lane != "live" || c.Issued[0].From.After(time.Now()) || c.Issued[0].To.Before(began) {
		t.Errorf("%+v", tr)
	}

	lost.Kill()
	l.change(0, 40)
	tr = l.awaitVerdict(t, key, "owed")
	if last := tr.Changes[len(tr.Changes)-1]; len(tr.Changes) != 2 || !last.Finished || len(last.Owed) != 1 || last.Owed[0].Kind != "node" || last.Owed[0].Name != lost.Addr {
		t.Errorf("%+v", tr)
	}
	lost.Start()
	harness.Await(t, "the status topic to call the node paid", func() (bool, string) {
		o := l.lastSaid(t, lost.Addr)
		return o.Paid, fmt.Sprintf("%+v", o)
	})
	tr = l.awaitVerdict(t, key, "late")
	if last := tr.Changes[1]; last.State != "late" || len(last.Late) == 0 || last.Late[0].Node != lost.Addr || last.Late[0].Paid.Before(last.Written) {
		t.Errorf("%+v", tr)
	}

	if code := harness.Start(t, "invalidate", "invalidate", key, "--reason", "by hand", "--by", "ann", "--config", l.File).Wait(); code != 0 {
		t.Errorf("invalidate: exit code %d", code)
	}
	harness.Await(t, "the key that was sent to be finished", func() (bool, string) {
		tr = l.trace(t, key)
		last := tr.Changes[len(tr.Changes)-1]
		return len(tr.Changes) == 3 && last.Finished && last.State == "deleted" && last.Sent != nil && last.Sent.By == "ann" && last.Sent.Reason == "by hand", fmt.Sprintf("%+v", tr)
	})
}
