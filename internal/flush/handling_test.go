package flush

import (
	"testing"
	"time"

	"invalidator/replay"
)

// TestHandling tells what people do about a flush.
func TestHandling(t *testing.T) {
	slow := func(q *replay.Request) { q.Slices = 30 }
	for name, do := range map[string]func(r *rig){
		"it is cancelled before it began": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"})
			r.say(replay.Cancel, "f1")
			r.start()
			if res := r.await("f1"); res.Clean || res.Error != "cancelled by bob@ops" || len(r.jobs()) > 0 {
				r.Errorf("%+v", res)
			}
		},
		"it is cancelled in the middle, and nothing more is deleted": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 20_000)...)
			r.ask("f1", replay.Target{Pool: "user"}, slow)
			r.start()
			r.after(15 * time.Second)
			r.say(replay.Cancel, "f1")
			if res := r.await("f1"); res.Clean || res.Error != "cancelled by bob@ops" {
				r.Errorf("%+v", res)
			}
			n := len(r.nodes.deletes())
			r.after(time.Minute)
			if n == 0 || n > 59_000 || len(r.nodes.deletes()) != n {
				r.Errorf("%d deletes when it was cancelled, %d later", n, len(r.nodes.deletes()))
			}
		},
		"of two that are one flush the other's goes on": func(r *rig) {
			r.nodes.fill("a:1", "old", keys("user", 3000)...)
			r.ask("f1", replay.Target{Pool: "user"}, slow)
			r.ask("f2", replay.Target{Pool: "user"})
			r.start()
			r.after(5 * time.Second)
			r.say(replay.Cancel, "f1")
			r.done("f2")
			r.expect(map[string]string{"a": ""})
			if res, _ := r.result("f1"); res.Error != "cancelled by bob@ops" {
				r.Errorf("%+v", res)
			}
		},
		"it is paused, and goes on where it was": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 20_000)...)
			r.ask("f1", replay.Target{Pool: "user"}, slow)
			r.start()
			r.after(15 * time.Second)
			r.say(replay.Pause, "f1")
			r.after(2 * time.Second)
			n := len(r.nodes.deletes())
			if r.metric("jobs", jobsPaused) != 1 {
				r.Error("it does not show that it is paused")
			}
			r.after(time.Hour)
			if n == 0 || len(r.nodes.deletes()) != n {
				r.Errorf("%d deletes when it was paused, %d later", n, len(r.nodes.deletes()))
			}
			r.say(replay.Resume, "f1")
			r.done("f1")
			r.expect(map[string]string{"a": "", "b": "", "c": ""})
			if len(r.nodes.deletes()) != 60_000 {
				r.Errorf("%d deletes", len(r.nodes.deletes()))
			}
		},
		"what is paused before it began does not begin, and others do": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"})
			r.say(replay.Pause, "f1")
			r.ask("f2", replay.Target{Pool: "feed"})
			r.start()
			r.done("f2")
			if _, ended := r.result("f1"); ended {
				r.Error("it was done")
			}
			r.say(replay.Resume, "f1")
			r.done("f1")
		},
		"it keeps its pace": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 1000)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Pace, q.Slices = 100, 1 })
			r.start()
			r.done("f1")
			at := r.nodes.deletes()
			first, last := at[0], at[len(at)-1]
			if took := last.Sub(first); took < 29*time.Second {
				r.Errorf("3000 copies at 100 a second took %s", took)
			}
		},
		"after each part the load has to be low for a while": func(r *rig) {
			r.nodes.fill("a:1", "old", keys("user", 6000)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices, q.Pace, q.Refill = 9, 1_000_000, 20 })
			r.start()
			r.done("f1")
			pauses := 0
			deletes := r.nodes.deletes()
			for i, at := range deletes[1:] {
				if gap := at.Sub(deletes[i]); gap >= 20*time.Second {
					pauses++
				}
			}
			if pauses != 2 {
				r.Errorf("%d pauses between 3 parts", pauses)
			}
		},
		"parts too small to be noticed are not waited for": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 100)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 300 })
			r.start()
			began := time.Now()
			r.done("f1")
			if took := time.Since(began); took > 15*time.Second {
				r.Errorf("it took %s", took)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, do) })
	}
}
