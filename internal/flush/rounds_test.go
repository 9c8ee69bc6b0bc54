package flush

import (
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/replay"
)

// owned are keys of a pool that a shard owns today.
func (r *rig) owned(shard, pool string, n int) (list []string) {
	for _, key := range keys(pool, 10*n) {
		if _, s := r.view.Topology.Locate(key); s == shard && len(list) < n {
			list = append(list, key)
		}
	}
	return list
}

// rounds are those that were told as done, of nodes: "1 a:1".
func (r *rig) rounds() (list []string) {
	for _, s := range r.statuses() {
		if p, is := s.(replay.Progress); is && p.Done {
			list = append(list, string(rune('0'+p.Round))+" "+p.Node)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestRounds tells when all is done again, and of what.
func TestRounds(t *testing.T) {
	for name, do := range map[string]func(r *rig){
		"a promotion: once at once, and again when everybody has seen it": func(r *rig) {
			r.see(viewOf(r.T, ringRecord(1, "s0 a b", "s1 b c"), ringRecord(2, "s0 b a", "s1 b c")))
			key := r.owned("s0", "feed", 1)[0]
			r.nodes.fill("a:1 b:1", "old", key)
			r.ask("promotion/2/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(2))
			r.start()
			r.after(20 * time.Second)
			r.expect(map[string]string{"a": "", "b": ""})
			r.nodes.fill("b:1", "old again", key) // by a client that does not know the record yet
			r.after(30 * time.Second)
			r.expect(map[string]string{"b": key + "=old again"})
			r.done("promotion/2/s0/feed")
			r.expect(map[string]string{"b": ""})
			if took := time.Since(r.begun); took < time.Minute+time.Second || took > 2*time.Minute {
				r.Errorf("it took %s", took)
			}
		},
		"marks are set no sooner than settle after the job's record, and after the last node was done": func(r *rig) {
			r.o.Settle = 20 * time.Second
			r.see(viewOf(r.T, ringRecord(1, "s0 a b"), previous(ringRecord(2, "s0 a b", "s1 c"), 1, "s0 a b")))
			r.nodes.fill("a:1 b:1 c:1", "old", "user:1")
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			marks, began, last := r.nodes.marked(), r.jobs()[0].At, time.Time{}
			for _, s := range r.statuses() {
				if p, is := s.(replay.Progress); is && p.Round == 1 && p.Done && p.At.After(last) {
					last = p.At
				}
			}
			if len(marks) != 6 || marks[0].Sub(began) < r.o.Settle || marks[3].Sub(last) < r.o.Settle {
				r.Errorf("a job of %s, whose first round was done at %s, has marks of %s", began, last, marks)
			}
		},
		"nobody carries values: one round": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			if got := strings.Join(r.rounds(), ", "); got != "1 a:1, 1 b:1, 1 c:1" {
				r.Error(got)
			}
		},
		"clients carry values from owner to owner: two": func(r *rig) {
			r.see(viewOf(r.T, ringRecord(1, "s0 a b"), previous(ringRecord(2, "s0 a b", "s1 c"), 1, "s0 a b")))
			r.nodes.fill("a:1 b:1 c:1", "old", "user:1")
			once(r.nodes.node("b:1"), func(show func() error) error {
				r.nodes.fill("c:1", "carried", "user:1") // from b, behind c's mark
				return show()
			})
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "", "b": "", "c": ""})
			if got := strings.Join(r.rounds(), ", "); got != "1 a:1, 1 b:1, 1 c:1, 2 a:1, 2 b:1, 2 c:1" {
				r.Error(got)
			}
		},
		"a replica is seeded: two": func(r *rig) {
			r.see(viewOf(r.T, ringRecord(1, "s0 a b"), ringRecord(2, "s0 a b c!")))
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			if n := len(r.rounds()); n != 6 {
				r.Error(r.rounds())
			}
		},
		"somebody carried a while ago, and did no more when it began: one": func(r *rig) {
			v := viewOf(r.T, ringRecord(1, "s0 a b"), ringRecord(2, "s0 a b"))
			v.Carried = time.Now().Add(-time.Minute)
			r.see(v)
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			if n := len(r.rounds()); n != 2 {
				r.Error(r.rounds())
			}
		},
		"somebody began to carry, and has ended, while it ran: two": func(r *rig) {
			r.nodes.node("c:1").down = errBroker
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.after(30 * time.Second)
			v := viewOf(r.T, ringRecord(1, "s0 a b", "s1 b c"))
			v.Carried = time.Now().Add(-5 * time.Second)
			r.see(v)
			r.nodes.change("c:1", func(n *fakeNode) { n.down = nil })
			r.done("f1")
			if n := len(r.rounds()); n != 6 {
				r.Error(r.rounds())
			}
		},
		"a node that joins meanwhile is flushed, and what nodes have gained, once more": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1 d:1", "old", keys("user", 20)...)
			next := viewOf(r.T, r.view.Sights[0].Record, ringRecord(2, "s0 a c", "s1 d c"))
			once(r.nodes.node("c:1"), func(show func() error) error { // the last
				err := show()
				r.see(next)
				return err
			})
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "", "b": "", "c": "", "d": ""})
			if got := strings.Join(r.rounds(), ", "); got != "1 a:1, 1 b:1, 1 c:1, 1 d:1, 3 c:1, 3 d:1" {
				r.Error(got)
			}
		},
		"what moved is flushed on who gained it, and no more": func(r *rig) {
			next := viewOf(r.T, r.view.Sights[0].Record, ringRecord(2, "s0 a b c", "s1 b c"))
			gained, not := r.owned("s0", "user", 1)[0], r.owned("s1", "user", 1)[0]
			once(r.nodes.node("c:1"), func(show func() error) error {
				err := show()
				r.see(next)
				r.nodes.fill("a:1 b:1 c:1", "new", gained, not)
				return err
			})
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			both := []string{gained + "=new", not + "=new"}
			slices.Sort(both)
			text := strings.Join(both, " ")
			r.expect(map[string]string{"a": text, "b": text, "c": not + "=new"})
		},
		"epochs that go on changing are followed": func(r *rig) {
			records := r.view.Sights[0].Record
			second := ringRecord(2, "s0 a b c", "s1 b c")
			third := ringRecord(3, "s0 a b c", "s1 b c a")
			dumps := 0
			r.nodes.node("c:1").dump = func(show func() error) error {
				err := show()
				switch dumps++; dumps {
				case 1:
					r.see(viewOf(r.T, records, second))
				case 2:
					r.see(viewOf(r.T, records, second, third))
				}
				return err
			}
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			if got := strings.Join(r.rounds(), ", "); got != "1 a:1, 1 b:1, 1 c:1, 3 a:1, 3 c:1, 4 a:1" {
				r.Error(got)
			}
		},
		"a promotion while values are carried: on every node, by the shard's old and new owners": func(r *rig) {
			r.see(viewOf(r.T, ringRecord(1, "s0 a b", "s1 b c"), previous(ringRecord(2, "s0 b a", "s1 c"), 1, "s0 a b", "s1 b c")))
			key := r.owned("s0", "feed", 1)[0]
			r.nodes.fill("a:1 b:1 c:1", "old", key)
			r.ask("promotion/2/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(2))
			r.start()
			r.done("promotion/2/s0/feed")
			r.expect(map[string]string{"a": "", "b": "", "c": ""})
		},
		"a dry run has one": func(r *rig) {
			r.see(viewOf(r.T, ringRecord(1, "s0 a b"), previous(ringRecord(2, "s0 a b", "s1 c"), 1, "s0 a b")))
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.DryRun = true })
			r.start()
			r.done("f1")
			if n := len(r.nodes.dumps()); n != 3 {
				r.Errorf("%d dumps", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, do) })
	}
}

// TestTakeoverOfRounds: who takes over in a later round begins none before it again, and what it does not know it does once more.
func TestTakeoverOfRounds(t *testing.T) {
	t.Run("the second", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			r.see(viewOf(r.T, ringRecord(1, "s0 a b"), previous(ringRecord(2, "s0 a b", "s1 c"), 1, "s0 a b")))
			r.nodes.fill("a:1 b:1 c:1", "old", "user:1")
			second := 0
			r.nodes.node("c:1").dump = func(show func() error) error {
				if second++; second == 2 {
					r.nodes.node("c:1").down = errBroker
					return errBroker
				}
				return show()
			}
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.after(time.Minute)
			r.stop()
			r.nodes.fill("a:1 b:1 c:1", "new", "user:1")
			r.nodes.node("c:1").down = nil
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "user:1=new", "b": "user:1=new", "c": ""})
		})
	})
	t.Run("what moved", func(t *testing.T) {
		inBubble(t, func(r *rig) {
			next := viewOf(r.T, r.view.Sights[0].Record, ringRecord(2, "s0 a b c", "s1 b c"))
			gained, not := r.owned("s0", "user", 1)[0], r.owned("s1", "user", 1)[0]
			dumps := 0
			r.nodes.node("c:1").dump = func(show func() error) error {
				switch dumps++; dumps {
				case 1:
					r.see(next)
				case 2:
					return errBroker
				}
				return show()
			}
			r.topics.write = func(record replay.Record) error { // it was told that a part of it was done, before it died
				if p, is := record.(replay.Progress); is && p.Round == 3 && p.Done {
					r.topics.write = nil
					r.topics.append(&r.topics.status, record)
					return errBroker
				}
				return nil
			}
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			for range 200 {
				if r.topics.terms() == 2 {
					break
				}
				r.after(time.Second / 2)
			}
			r.nodes.fill("a:1 b:1 c:1", "new", gained, not)
			r.done("f1")
			both := []string{gained + "=new", not + "=new"}
			slices.Sort(both)
			r.expect(map[string]string{"a": strings.Join(both, " "), "b": strings.Join(both, " ")})
			if r.topics.terms() != 2 {
				r.Errorf("%d terms", r.topics.terms())
			}
		})
	})
}
