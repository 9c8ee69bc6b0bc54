//go:build integration

package replay

import (
	"fmt"
	"testing"

	"invalidator/replay"
	"invalidator/test/integration/harness"
)

// What a reader, or a replica that was behind, has left on the copies is deleted again by a replay of the pool, on every copy, and nothing of another pool. A dry run
// before counts the same and deletes nothing.
func TestReplayOfAPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 60)
	w.Work()
	w.Work()
	w.AwaitDone(w.topic)
	w.fill("item")
	w.fill("other")
	items, others := w.all("item"), w.all("other")

	w.replayOf("count", "item", true)
	if got := w.result("count"); !got.Clean || got.Keys != 60 || got.Copies != int64(items) {
		t.Errorf("the dry run ended as %+v, want 60 keys, %d copies", got, items)
	}
	w.wantLeft(items, others)

	w.replayOf("again", "item", false)
	if got := w.result("again"); !got.Clean || got.Keys != 60 || got.Copies != int64(items) {
		t.Errorf("the replay ended as %+v, want 60 keys, %d copies", got, items)
	}
	w.wantLeft(0, others)
	if owing := w.owing(); len(owing) > 0 {
		t.Errorf("its result is there, and it owes %q", owing)
	}
}

// A window of commits, of one shard: its keys alone, on primary and replica.
func TestReplayOfAShardByCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 60)
	w.Work()
	w.AwaitDone(w.topic)
	w.fill("item")
	w.fill("other")
	onPrimary := len(w.copies("item")[w.nodes[0].Addr]) + len(w.copies("other")[w.nodes[0].Addr])
	q := windowOfCommits("shard", replay.Target{Shard: "s0"})
	w.ask(q)
	if got := w.result("shard"); !got.Clean || got.Keys != int64(onPrimary) || got.Copies != int64(2*onPrimary) {
		t.Errorf("it ended as %+v, want %d keys", got, onPrimary)
	}
	w.wantLeft(w.all("item")-2*len(w.copies("item")[w.nodes[0].Addr]), w.all("other")-2*len(w.copies("other")[w.nodes[0].Addr]))
}

// A worker that is killed while it replays: whoever has its partitions then goes on, and the replay ends.
func TestReplayOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4000)
	first := w.Work()
	w.AwaitDone(w.topic)
	w.fill("item")
	w.replayOf("again", "item", false)
	harness.AwaitQuick(t, "a word of the replay", func() (bool, string) {
		progress, end := w.told("again")
		return len(progress) > 0 || end != nil, ""
	})
	first.Kill()
	w.Work()
	if got := w.result("again"); !got.Clean { // its numbers may lack what the dead worker had done and not told
		t.Errorf("it ended as %+v", got)
	}
	w.wantLeft(0, 0)
}

// Requests reach a fleet that is down when it comes up. What was cancelled before is not begun; what asks for a pool that is none is refused; neither holds the next one up.
func TestRequestsOfAFleetThatIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 60)
	worker := w.Work()
	w.AwaitDone(w.topic)
	worker.Terminate()
	w.fill("item")
	w.fill("other")
	w.replayOf("slip", "item", false)
	w.ask(replay.Request{ID: "stop", Reason: "a slip", Action: replay.Cancel, Of: "slip"})
	w.replayOf("misspelt", "itme", false)
	w.replayOf("meant", "other", false)
	w.Work()
	if got := w.result("meant"); !got.Clean || got.Keys != 60 {
		t.Errorf("it ended as %+v", got)
	}
	if got := w.result("slip"); got.Error != "cancelled by ann: a slip" || got.Clean {
		t.Errorf("what was cancelled ended as %+v", got)
	}
	if got, want := w.result("misspelt"), fmt.Sprintf("there is no pool itme (did you mean %q?)", "item"); got.Error != want || got.Clean {
		t.Errorf("what was refused ended as %+v, want %s", got, want)
	}
	w.wantLeft(w.all("item"), 0)
}
