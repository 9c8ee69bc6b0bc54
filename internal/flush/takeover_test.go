package flush

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/replay"
)

// TestTheTopicsFail: the term ends, and the next one goes on with what stands there.
func TestTheTopicsFail(t *testing.T) {
	for what, fails := range map[string]func(replay.Record) bool{
		"a job":      func(r replay.Record) bool { _, is := r.(replay.Job); return is },
		"a progress": func(r replay.Record) bool { _, is := r.(replay.Progress); return is },
		"a result":   func(r replay.Record) bool { _, is := r.(replay.Result); return is },
	} {
		for _, written := range []bool{false, true} { // it is not known whether it was
			t.Run(fmt.Sprintf("%s that is written: %v", what, written), func(t *testing.T) {
				inBubble(t, func(r *rig) {
					r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 50)...)
					failed := 0
					r.topics.write = func(record replay.Record) error {
						if !fails(record) || failed == 3 {
							return nil
						}
						failed++
						if written {
							if _, is := record.(replay.Job); is {
								r.topics.append(&r.topics.control, record)
							} else {
								r.topics.append(&r.topics.status, record)
							}
						}
						return errBroker
					}
					r.ask("f1", replay.Target{Pool: "user"})
					r.ask("f2", replay.Target{Pool: "user"})
					r.start()
					for _, id := range []string{"f1", "f2"} {
						r.done(id)
					}
					r.expect(map[string]string{"a": "", "b": "", "c": ""})
					if r.topics.terms() < 2 || failed == 0 {
						r.Errorf("%d terms, %d failures", r.topics.terms(), failed)
					}
					ids := map[string]bool{}
					for _, j := range r.jobs() {
						ids[j.ID] = true
					}
					if len(ids) != 1 {
						r.Errorf("%d jobs", len(ids))
					}
				})
			})
		}
	}
}

// TestTheTopicsCannotBeOpened: it is tried again.
func TestTheTopicsCannotBeOpened(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", "user:1")
		open, tries := r.o.Open, 0
		r.o.Open = func(ctx context.Context) (Log, error) {
			if tries++; tries < 4 {
				return nil, errBroker
			}
			return open(ctx)
		}
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.done("f1")
		r.expect(map[string]string{"a": ""})
	})
}

// TestWhatWasSaidCannotBeRead: nothing is done before it is known what was done already.
func TestWhatWasSaidCannotBeRead(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", "user:1")
		var away atomic.Bool
		away.Store(true)
		r.topics.past = func() error {
			if away.Load() {
				return errBroker
			}
			return nil
		}
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.after(5 * time.Minute)
		if n := len(r.jobs()) + len(r.nodes.dumps()); n > 0 {
			t.Errorf("%d jobs and dumps", n)
		}
		if n := r.log.Count("flushes stand still"); n < 5 || n > 20 {
			t.Errorf("it was told %d times", n)
		}
		away.Store(false)
		r.done("f1")
	})
}

// TestAClaimThatGoesWhileNothingEnds: whoever waits for it is let go.
func TestAClaimThatGoesWhileNothingEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.node("a:1").dump = func(func() error) error { time.Sleep(time.Minute); return errBroker } // whatever its context says
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.after(20 * time.Second)
		began := time.Now()
		r.conductor.Claim(nil)
		if took := time.Since(began); took < claimPatience || took > claimPatience+time.Second {
			t.Errorf("it took %s", took)
		}
		if r.log.Count("has not ended in time") != 1 {
			t.Error(r.log.String())
		}
	})
}

// TestAClaimThatComesAndGoes: of the same partition, and of others, before Run and after it.
func TestAClaimThatComesAndGoes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", "user:1")
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		for range 20 {
			r.conductor.Claim([]int32{1})
			r.conductor.Claim([]int32{1, 7})
			r.conductor.Claim([]int32{7})
		}
		r.done("f1")
		r.stop()
		r.conductor.Claim(nil)
	})
}

// TestWhoIsNoConductorAnyMoreDumpsNothing: a worker that was stopped for a while thinks that it still is.
func TestWhoIsNoConductorAnyMoreDumpsNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1 b:1", "old", "user:1")
		r.lost.Store(true)
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.after(time.Minute)
		if len(r.nodes.dumps()) > 0 || len(r.nodes.deletes()) > 0 || r.asked.Load() == 0 {
			r.Errorf("%d dumps, %d deletes, asked %d times", len(r.nodes.dumps()), len(r.nodes.deletes()), r.asked.Load())
		}
		r.lost.Store(false)
		r.done("f1")
		if int(r.asked.Load()) < len(r.nodes.dumps()) {
			r.Errorf("%d dumps, asked %d times", len(r.nodes.dumps()), r.asked.Load())
		}
	})
}

// TestTakeover: who comes next does not do again what was told as done.
func TestTakeover(t *testing.T) {
	for _, way := range []string{"it dies", "its claim goes"} {
		t.Run(way, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 6000)...)
				r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 12 })
				r.start()
				r.after(40 * time.Second)
				if way == "it dies" {
					r.stop()
				} else {
					r.conductor.Claim([]int32{3})
					if r.metric("conductor") != 0 {
						r.Error("it shows that it conducts")
					}
				}
				before, told := len(r.nodes.deletes()), int64(0)
				for _, s := range r.statuses() {
					if p, is := s.(replay.Progress); is && p.Done {
						told += p.Copies
					}
				}
				if before < 3000 || before == 18_000 || told == 0 {
					r.Fatalf("%d deletes, %d told: it is not in the middle", before, told)
				}
				r.after(time.Minute)
				if n := len(r.nodes.deletes()); n != before {
					r.Fatalf("%d deletes without a conductor", n-before)
				}
				r.nodes.fill("a:1 b:1 c:1", "new", keys("user", 50)...)
				r.o.Worker = "w2"
				if way == "it dies" {
					r.start()
				} else {
					r.conductor.Claim([]int32{7})
				}
				res := r.done("f1")
				if res.Copies < 17_800 || len(r.jobs()) != 1 {
					r.Errorf("%+v, %d jobs", res, len(r.jobs()))
				}
				// What was filled in what was done before stays; of the rest there is a mark that is later.
				left := 0
				for _, node := range []string{"a:1", "b:1", "c:1"} {
					left += len(r.nodes.holds(node))
				}
				if left == 0 || left == 150 {
					r.Errorf("%d copies are left", left)
				}
				if n := len(r.nodes.deletes()); n > 18_150 {
					r.Errorf("%d deletes", n)
				}
			})
		})
	}
}

// TestOfTwoConductorsTheFirstJobCounts: the other was stopped before it wrote, and woke.
func TestOfTwoConductorsTheFirstJobCounts(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", "user:1")
		r.ask("f1", replay.Target{Pool: "user"})
		r.ask("f2", replay.Target{Pool: "user"})
		job := replay.Job{ID: "f1", At: time.Now(), Worker: "w0", Scope: replay.Target{Pool: "user"}, Answers: []string{"f1", "f2"}, Epoch: 1, Limit: 1000, Parts: 3,
			Options: replay.Options{Pace: 100, Refill: 1}}
		late := job
		late.ID, late.Answers = "f2", []string{"f2"}
		r.topics.append(&r.topics.control, job)
		r.topics.append(&r.topics.control, late)
		r.start()
		r.done("f1")
		r.done("f2")
		for _, s := range r.statuses() {
			if p, is := s.(replay.Progress); is && p.ID != "f1" {
				r.Errorf("%+v", p)
			}
		}
	})
}

// TestARefusalThatCannotBeTold is told later.
func TestARefusalThatCannotBeTold(t *testing.T) {
	inBubble(t, func(r *rig) {
		failed := false
		r.topics.write = func(replay.Record) error {
			if !failed {
				failed = true
				return errBroker
			}
			return nil
		}
		r.ask("f1", replay.Target{Node: "z:1"})
		r.start()
		if res := r.await("f1"); res.Clean || r.topics.terms() != 2 {
			t.Errorf("%+v in %d terms", res, r.topics.terms())
		}
	})
}

// TestTheControlTopicIsMadeAgain: what was asked for on the old one is not done any more, and what is asked for on the new one is.
func TestTheControlTopicIsMadeAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1 b:1 c:1", "old", append(keys("user", 20_000), "feed:1")...)
		r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 30 })
		r.start()
		r.after(15 * time.Second)
		r.topics.makeAgain()
		r.after(2 * time.Second)
		n := len(r.nodes.deletes())
		r.after(time.Minute)
		if n == 0 || len(r.nodes.deletes()) != n {
			t.Errorf("%d deletes, then %d", n, len(r.nodes.deletes()))
		}
		r.ask("f1", replay.Target{Pool: "feed"})
		r.done("f1")
		if _, there := r.nodes.node("a:1").items["feed:1"]; there {
			t.Error("what is asked for now is not done")
		}
	})
}

// TestAJobThatTheTopicHasLost is begun again: the topic was made again just then.
func TestAJobThatTheTopicHasLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", "user:1")
		r.topics.lose = func(record replay.Record) bool {
			_, is := record.(replay.Job)
			r.topics.lose = nil
			return is
		}
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.done("f1")
		r.expect(map[string]string{"a": ""})
	})
}

// TestAJobAnswersWhatLiesBeforeIt: what was asked for after its record may be about what was cached after its marks.
func TestAJobAnswersWhatLiesBeforeIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.ask("f1", replay.Target{Pool: "user"})
		r.topics.append(&r.topics.control, replay.Job{ID: "f1", At: time.Now(), Worker: "w0", Scope: replay.Target{Pool: "user"}, Answers: []string{"f1", "f2"}, Epoch: 1, Limit: 1000, Parts: 3,
			Options: replay.Options{Pace: 100, Refill: 1}})
		r.ask("f2", replay.Target{Pool: "user"})
		r.start()
		r.done("f1")
		r.done("f2")
		if jobs := r.jobs(); len(jobs) != 2 || jobs[1].ID != "f2" {
			t.Errorf("%+v", jobs)
		}
	})
}
