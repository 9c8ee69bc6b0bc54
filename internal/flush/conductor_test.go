package flush

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/replay"
	"invalidator/sink/registry"
)

// keys are n of a pool.
func keys(pool string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s:%d", pool, i))
	}
	return list
}

// TestFlushes tells what becomes of what nodes hold.
func TestFlushes(t *testing.T) {
	for name, do := range map[string]func(r *rig){
		"a pool's keys go wherever they are, and no others": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", "user:1", "user:1#3", "users:1", "feed:1", "user")
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			res := r.done("f1")
			r.expect(map[string]string{"a": "feed:1=old users:1=old", "b": "feed:1=old users:1=old", "c": "feed:1=old users:1=old"})
			if res.Copies != 9 || res.Kept != 0 {
				r.Errorf("%+v", res)
			}
		},
		"a pool's name may be the whole key, and have hot copies": func(r *rig) {
			r.nodes.fill("a:1", "old", "feed", "feed#2", "feed#x", "feed#", "#2", "feed2")
			r.ask("f1", replay.Target{Pool: "feed"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "#2=old feed#=old feed#x=old feed2=old"})
		},
		"a key prefix is no part of the pool": func(r *rig) {
			record := ringRecord(1, "s0 a b")
			record.KeyPrefix = "p:"
			r.see(viewOf(r.T, record))
			r.nodes.fill("a:1", "old", "p:user:1", "p:p:1", "user:1")
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "p:p:1=old user:1=old"})
		},
		"all of a node goes, and nothing of another": func(r *rig) {
			r.nodes.fill("a:1 b:1", "old", "user:1", "unclaimed", "feed:1")
			r.ask("f1", replay.Target{Node: "a:1"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "", "b": "feed:1=old unclaimed=old user:1=old"})
		},
		"what is filled after the first mark stays": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 3)...)
			r.ask("f1", replay.Target{Pool: "user"})
			r.nodes.node("a:1").dump = func(show func() error) error {
				r.nodes.fill("a:1 c:1", "new", "user:0") // c is not dumped yet, and has its mark
				return show()
			}
			r.start()
			res := r.done("f1")
			r.expect(map[string]string{"a": "user:0=new", "b": "", "c": "user:0=new"})
			if res.Kept != 2 {
				r.Errorf("%+v", res)
			}
		},
		"what is filled between the dump and its delete stays": func(r *rig) {
			r.nodes.fill("a:1", "old", keys("user", 2)...)
			r.nodes.node("a:1").deleted = func(key string) { r.nodes.fill("a:1", "new", key) }
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			res := r.done("f1")
			r.expect(map[string]string{"a": "user:0=new user:1=new"})
			if res.Kept != 2 || res.Copies != 0 {
				r.Errorf("%+v", res)
			}
		},
		"without CAS what is there is deleted, once": func(r *rig) {
			r.nodes.fill("a:1", "old", keys("user", 3)...)
			n := r.nodes.node("a:1")
			n.noCAS = true
			deletes := 0
			n.deleted = func(string) { deletes++ }
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": ""})
			if deletes != 3 {
				r.Errorf("%d deletes", deletes)
			}
		},
		"keys are marked stale where that was asked for": func(r *rig) {
			r.nodes.fill("a:1", "old", "user:1")
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Stale, q.StaleFor = true, 20 })
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "user:1=old stale 20s"})
		},
		"and for 30 s where nobody says for how long": func(r *rig) {
			r.nodes.fill("a:1", "old", "user:1")
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Stale = true })
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "user:1=old stale 30s"})
		},
		"a dry run counts, and sends nothing": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 40)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.DryRun, q.Slices, q.Pace, q.Refill = true, 12, 10, 5 })
			r.start()
			res := r.done("f1")
			if res.Copies != 120 || res.Keys != 40 {
				r.Errorf("%+v", res)
			}
			// 120 copies at 10 a second, and between 12 parts 5 s.
			if want := int64(120/10 + 11*5); res.Seconds != want {
				r.Errorf("it would take %d s, want %d", res.Seconds, want)
			}
			byPart := map[string]int64{}
			for _, s := range r.statuses() {
				if p, is := s.(replay.Progress); is {
					byPart[p.Node] += p.Copies
				}
			}
			if d := cmp.Diff(map[string]int64{"a:1": 40, "b:1": 40, "c:1": 40}, byPart); d != "" {
				r.Error(d)
			}
			for _, node := range []string{"a", "b", "c"} {
				if n := len(r.nodes.node(node + ":1").items); n != 40 { // no mark either
					r.Errorf("%d items on %s", n, node)
				}
			}
		},
		"a shard's keys go on its nodes alone": func(r *rig) {
			topology := r.view.Topology
			r.nodes.fill("a:1 b:1 c:1", "old", keys("feed", 20)...)
			r.nodes.fill("a:1", "old", "user:1")
			r.ask("promotion/1/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(1))
			r.start()
			r.done("promotion/1/s0/feed")
			var left []string
			for _, key := range keys("feed", 20) {
				if _, s := topology.Locate(key); s == "s1" {
					left = append(left, key+"=old")
				}
			}
			slices.Sort(left)
			if len(left) == 0 || len(left) == 20 {
				r.Fatal("the keys are all of one shard")
			}
			if d := cmp.Diff(left, r.nodes.holds("b:1")); d != "" {
				r.Error(d)
			}
			if d := cmp.Diff(append(left, "user:1=old"), r.nodes.holds("a:1")); d != "" {
				r.Error(d)
			}
			if got := r.nodes.holds("c:1"); len(got) != 20 {
				r.Errorf("c is no node of s0, and has %d keys left", len(got))
			}
		},
		"what nodes gained while nobody saw goes": func(r *rig) {
			before, after := ringRecord(1, "s0 a b", "s1 b c"), ringRecord(4, "s0 d b", "s1 b c")
			v := viewOf(r.T, before, after)
			v.Unseen = []registry.Hole{{After: 1, Before: 4, Until: time.Now().Add(time.Hour)}}
			r.see(v)
			r.nodes.fill("a:1 b:1 c:1 d:1", "old", keys("user", 20)...)
			r.nodes.fill("d:1", "old", "unclaimed:1")
			r.ask("gained/4", replay.Target{Gained: 4}, func(q *replay.Request) { q.Cause = &replay.Cause{What: replay.Gained, Epoch: 4} })
			r.start()
			r.done("gained/4")
			for node, want := range map[string]int{"a:1": 20, "b:1": 20, "c:1": 20} {
				if got := len(r.nodes.holds(node)); got != want {
					r.Errorf("%s holds %d keys, want %d", node, got, want)
				}
			}
			var left []string // of s1, which d has nothing of
			for _, key := range keys("user", 20) {
				if _, s := v.Topology.Locate(key); s == "s1" {
					left = append(left, key+"=old")
				}
			}
			left = append(left, "unclaimed:1=old")
			slices.Sort(left)
			if d := cmp.Diff(left, r.nodes.holds("d:1")); d != "" {
				r.Error(d)
			}
		},
		"where nodes gained nothing there is nothing to do": func(r *rig) {
			r.ask("gained/1", replay.Target{Gained: 1}, func(q *replay.Request) { q.Cause = &replay.Cause{What: replay.Gained, Epoch: 1} })
			r.start()
			r.done("gained/1")
			if len(r.jobs()) > 0 {
				r.Errorf("%+v", r.jobs())
			}
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, do) })
	}
}

// TestOrder tells which request is answered when, and by which job.
func TestOrder(t *testing.T) {
	for name, do := range map[string]func(r *rig){
		"requests of one pool are one flush, which takes the most careful of their options": func(r *rig) {
			r.nodes.fill("a:1", "old", "user:1")
			truncate := &replay.Cause{What: replay.Truncate, Source: "shop", Tables: []string{"shop.users"}, Record: replay.Range{Topic: "t", From: 1, To: 2}}
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Stale, q.Pace, q.Slices = true, 700, 10 })
			r.ask("t1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Cause = truncate })
			r.ask("f2", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Pace, q.Slices, q.Refill, q.MaxLoad = 900, 60, 3, "500" })
			r.ask("f3", replay.Target{Pool: "feed"})
			r.start()
			for _, id := range []string{"f1", "t1", "f2", "f3"} {
				r.done(id)
			}
			r.expect(map[string]string{"a": ""}) // not all asked for stale
			want := []replay.Job{
				{ID: "f1", Worker: "w1", Scope: replay.Target{Pool: "user"}, Answers: []string{"f1", "t1", "f2"}, Epoch: 1, Limit: 500, Parts: 20,
					Options: replay.Options{Pace: 700, Slices: 60, Refill: 3, MaxLoad: "500"}},
				{ID: "f3", Worker: "w1", Scope: replay.Target{Pool: "feed"}, Answers: []string{"f3"}, Epoch: 1, Limit: 1000, Parts: 11,
					Options: replay.Options{Pace: DefaultPace, Refill: 10}},
			}
			got := r.jobs()
			for i := range got {
				got[i].At = time.Time{}
			}
			if d := cmp.Diff(want, got); d != "" {
				r.Error(d)
			}
		},
		"two limits, and a dry run, are flushes of their own": func(r *rig) {
			limit := func(text string) func(*replay.Request) { return func(q *replay.Request) { q.MaxLoad = text } }
			r.ask("f1", replay.Target{Pool: "user"}, limit("500"))
			r.ask("f2", replay.Target{Pool: "user"}, limit("600"))
			r.ask("f3", replay.Target{Pool: "user"})
			r.ask("f4", replay.Target{Pool: "user"}, func(q *replay.Request) { q.DryRun = true })
			r.start()
			for _, id := range []string{"f1", "f2", "f3", "f4"} {
				r.done(id)
			}
			answers := map[string][]string{}
			for _, j := range r.jobs() {
				answers[j.ID] = j.Answers
			}
			if d := cmp.Diff(map[string][]string{"f1": {"f1", "f3"}, "f2": {"f2"}, "f4": {"f4"}}, answers); d != "" {
				r.Error(d)
			}
		},
		"what is asked for after a flush began has one of its own, with a later mark": func(r *rig) {
			r.nodes.fill("a:1 b:1", "old", "user:1")
			r.nodes.node("a:1").dump = func(show func() error) error {
				if len(r.jobs()) == 1 {
					r.nodes.fill("a:1", "stale again", "user:1")
					r.ask("f2", replay.Target{Pool: "user"})
				}
				return show()
			}
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			r.expect(map[string]string{"a": "user:1=stale again"})
			r.done("f2")
			r.expect(map[string]string{"a": ""})
		},
		"a second request of one id is the first one": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"})
			r.start()
			r.done("f1")
			r.ask("f1", replay.Target{Pool: "user"})
			r.after(time.Minute)
			if n := len(r.jobs()); n != 1 {
				r.Errorf("%d jobs", n)
			}
		},
		"promotions go first, then what was gained, then others in their order": func(r *rig) {
			v := viewOf(r.T, ringRecord(1, "s0 a b", "s1 b c"), ringRecord(3, "s0 b a", "s1 b d"))
			v.Unseen = []registry.Hole{{After: 1, Before: 3, Until: time.Now().Add(time.Hour)}}
			r.see(v)
			r.ask("f1", replay.Target{Pool: "user"})
			r.ask("gained/3", replay.Target{Gained: 3}, func(q *replay.Request) { q.Cause = &replay.Cause{What: replay.Gained, Epoch: 3} })
			r.ask("promotion/3/s1/feed", replay.Target{Pool: "feed", Shard: "s1"}, promoted(3))
			r.ask("promotion/3/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(3))
			r.start()
			r.done("f1")
			r.done("promotion/3/s0/feed")
			var order []string
			for _, j := range r.jobs() {
				order = append(order, j.ID)
			}
			if d := cmp.Diff([]string{"promotion/3/s1/feed", "gained/3", "f1"}, order); d != "" {
				r.Error(d)
			}
			if d := cmp.Diff([]string{"promotion/3/s1/feed", "promotion/3/s0/feed"}, r.jobs()[0].Answers); d != "" {
				r.Error(d)
			}
		},
		"a promotion overtakes between two parts": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", append(keys("user", 6000), keys("feed", 20)...)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 12 })
			r.start()
			r.after(30 * time.Second)
			left := len(r.nodes.holds("a:1")) + len(r.nodes.holds("b:1"))
			if left == 2*6020 || left == 2*20 {
				r.Fatalf("%d copies are left: it is not in the middle", left)
			}
			r.ask("promotion/1/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(1))
			r.after(15 * time.Second)
			fed := 0
			for _, key := range r.nodes.holds("a:1") {
				if key[0] == 'f' {
					fed++
				}
			}
			if _, ended := r.result("f1"); ended || fed == 20 {
				r.Errorf("the promotion has not overtaken: %d of the pool's keys are left on a", fed)
			}
			r.done("promotion/1/s0/feed")
			r.done("f1")
			for _, node := range []string{"a:1", "b:1", "c:1"} {
				if got := r.nodes.holds(node); slices.ContainsFunc(got, func(k string) bool { return k[0] == 'u' }) {
					r.Errorf("%s holds %d keys", node, len(got))
				}
			}
		},
		"a request about a record that this worker has not seen waits for it": func(r *rig) {
			r.nodes.fill("a:1 b:1 d:1", "old", keys("feed", 10)...)
			r.ask("promotion/2/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(2))
			r.start()
			r.after(20 * time.Second)
			if len(r.jobs()) > 0 {
				r.Fatal("it has begun")
			}
			r.see(viewOf(r.T, ringRecord(1, "s0 a b", "s1 b c"), ringRecord(2, "s0 d a", "s1 b c")))
			r.done("promotion/2/s0/feed")
			for _, key := range r.nodes.holds("d:1") {
				if _, s := r.view.Topology.Locate(key[:len(key)-len("=old")]); s == "s0" {
					r.Errorf("d holds %s", key)
				}
			}
		},
		"and is about the whole pool where nobody has it": func(r *rig) {
			r.nodes.fill("a:1 b:1 c:1", "old", keys("feed", 10)...)
			r.ask("promotion/2/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(2))
			r.start()
			r.after(viewPatience + 30*time.Second)
			r.expect(map[string]string{"a": "", "b": "", "c": ""})
			r.done("promotion/2/s0/feed")
		},
		"what has expired before it began is refused": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Expires = time.Now().Add(time.Minute) })
			r.after(2 * time.Minute)
			r.start()
			if res := r.await("f1"); res.Clean || res.Error != "it had not begun when it expired, at 2000-01-01T00:01:00Z" {
				r.Errorf("%+v", res)
			}
		},
		"what was asked for longer ago than a copy lives needs no flush": func(r *rig) {
			r.nodes.fill("a:1", "new", "user:1")
			r.ask("f1", replay.Target{Pool: "user"})
			r.after(25 * time.Hour)
			r.start()
			r.after(time.Minute)
			r.expect(map[string]string{"a": "user:1=new"})
			if len(r.jobs()) > 0 || r.metric("requests") > 0 {
				r.Error("it is answered")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { inBubble(t, do) })
	}
}

// TestMemoryIsBounded: a node with more keys than find room is dumped again, and each key is deleted once.
func TestMemoryIsBounded(t *testing.T) {
	for _, slices := range []int{1, 30} {
		inBubble(t, func(r *rig) {
			r.o.Arena = 4 << 10 // some 300 keys
			r.nodes.fill("a:1", "old", keys("user", 3000)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices, q.Refill = slices, 1 })
			r.start()
			res := r.done("f1")
			r.expect(map[string]string{"a": ""})
			if n := len(r.nodes.deletes()); n != 3000 || res.Copies != 3000 {
				r.Errorf("%d deletes, %+v", n, res)
			}
			if n := len(r.nodes.dumps()); n < 10 || n > 60 {
				r.Errorf("%d dumps", n)
			}
		})
	}
}

// TestOfManyCandidatesFewAreMeant: what a shard owns is looked for among all that a node has of the pool.
func TestOfManyCandidatesFewAreMeant(t *testing.T) {
	for _, arena := range []int{8 << 10, arenaSize} {
		inBubble(t, func(r *rig) {
			r.o.Arena = arena
			topology := r.view.Topology
			all := keys("feed", 3000)
			r.nodes.fill("a:1 b:1", "old", all...)
			want := 0
			for _, key := range all {
				if _, shard := topology.Locate(key); shard == "s0" {
					want++
				}
			}
			r.ask("f1", replay.Target{Pool: "feed", Shard: "s0"}, func(q *replay.Request) { q.Slices, q.Refill = 200, 1 })
			r.start()
			res := r.done("f1")
			for _, node := range []string{"a:1", "b:1"} {
				for _, text := range r.nodes.holds(node) {
					if _, shard := topology.Locate(text[:len(text)-len("=old")]); shard == "s0" {
						r.Errorf("%s holds %s", node, text)
					}
				}
			}
			if got := len(r.nodes.deletes()); got != 2*want || res.Copies != int64(2*want) {
				r.Errorf("%d deletes, %+v, of %d keys", got, res, want)
			}
		})
	}
}

// TestADryRunOfMany counts exactly what it need not look at closely, and about so many of the rest.
func TestADryRunOfMany(t *testing.T) {
	inBubble(t, func(r *rig) {
		const n = 60_000
		r.nodes.fill("a:1 b:1", "old", keys("user", n)...)
		dry := func(q *replay.Request) { q.DryRun = true }
		r.ask("f1", replay.Target{Pool: "user"}, dry)
		r.ask("f2", replay.Target{Pool: "user", Shard: "s0"}, dry)
		r.start()
		about := func(what string, got, want int64) {
			r.Helper()
			if got < want*9/10 || got > want*11/10 {
				r.Errorf("%s: %d, want about %d", what, got, want)
			}
		}
		of := map[string]int64{}
		for _, key := range keys("user", n) {
			_, shard := r.view.Topology.Locate(key)
			of[shard]++
		}
		all, shard := r.done("f1"), r.done("f2")
		if all.Copies != 2*n {
			r.Errorf("%+v", all)
		}
		about("keys that readers ask first", all.Keys, n)
		about("copies of a shard", shard.Copies, 2*of["s0"])
		about("keys of a shard", shard.Keys, of["s0"])
	})
}

// TestEveryPartIsToldOnce: so that who takes over can go on.
func TestEveryPartIsToldOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 100)...)
		r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 6 })
		r.start()
		res := r.done("f1")
		told := map[string]int64{}
		for _, s := range r.statuses() {
			if p, is := s.(replay.Progress); is && p.Done {
				told[fmt.Sprintf("%s %s round %d epoch %d", p.Node, p.Part, p.Round, p.Epoch)] += p.Copies
			}
		}
		sum := int64(0)
		for _, node := range []string{"a:1", "b:1", "c:1"} {
			for _, part := range []string{"1/2", "2/2"} {
				at := node + " " + part + " round 1 epoch 1"
				if told[at] == 0 {
					r.Errorf("%s was not told: %v", at, told)
				}
				sum += told[at]
			}
		}
		if len(told) != 6 || sum != 300 || res.Copies != 300 || res.Keys != 100 {
			r.Errorf("%v %+v", told, res)
		}
	})
}
