package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/mapping"
)

// stormFile is a file of two pools, of which one has settings.
func stormFile(user string) string {
	return "version: 1\nteam: profiles\npools: [user, mail]\nreaders: meta\nstorm:\n  user: " + user +
		"\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}', 'mail:{email}']}\n"
}

func stormy(t *testing.T, user string, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, stormFile(user))
		r.keepSet()
		r.w.Assign(users, 0, changelog.Restored{})
		synctest.Wait()
		test(t, r)
	})
}

// keepSet has the archive know today's set.
func (r *rig) keepSet() {
	m := r.w.opts.Snapshots.Current().Mapper
	r.archive.mu.Lock()
	defer r.archive.mu.Unlock()
	r.archive.sets[m.Fingerprint()] = m
}

// reload puts another text of the one file in force.
func (r *rig) reload(t *testing.T, file string) {
	t.Helper()
	f, problems := mapping.Parse("users.yaml", []byte(file))
	if f == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	r.w.opts.Snapshots.SetMapper(set)
	r.keepSet()
	for _, p := range r.w.all() {
		rouse(p.wake)
	}
}

// sendRow sends a row of a transaction, whose id and address are its offset.
func (r *rig) sendRow(offset int64, tx string, place int64) {
	c := update(fmt.Sprint(offset), fmt.Sprint(offset), fmt.Sprint(offset))
	c.Tx, c.Ordinal = tx, place
	r.send(offset, c)
}

// mass sends a transaction of n rows.
func (r *rig) mass(from, n int64) {
	for i := range n {
		r.sendRow(from+i, fmt.Sprint("mass", from), i)
	}
	synctest.Wait()
}

// deleted is how many of the users of [from, to) had so many deletes on a node since the last take.
func (r *rig) deleted(node string, from, to int64, times int) (n int) {
	r.nodes.mu.Lock()
	defer r.nodes.mu.Unlock()
	counts := map[string]int{}
	for _, s := range r.nodes.seen {
		counts[s]++
	}
	for o := from; o < to; o++ {
		if counts[fmt.Sprintf("%s user:%d", node, o)] == times {
			n++
		}
	}
	return n
}

// DELIVERY 9: rows of a transaction beyond storm.rows are owed by their pool, and by it alone; the watermark passes them, and a pass at the
// pool's pace deletes them on every copy, twice.
func TestRowsBeyondAStorm(t *testing.T) {
	stormy(t, "{rows: 10, pace: 1000}", func(t *testing.T, r *rig) {
		r.mass(0, 100)
		if live := r.deleted("n1", 0, 100, 1); live != 10 || r.nodes.laneOf("n1 user:9") != "live" {
			t.Errorf("%d users live", live)
		}
		for o := range int64(100) {
			if r.nodes.laneOf(fmt.Sprintf("n2 mail:%d", o)) != "live" {
				t.Fatalf("mail:%d is of another pool, and is not live", o)
			}
		}
		r.wantDebts(t, "storm user 10-100")
		r.wantCount(t, 90, "deferred_keys_total", "storm", "user")
		r.wantCount(t, 1, "storms", "user")
		r.nodes.take()
		r.pass(gather)
		if lane := r.nodes.laneOf("n1 user:99"); lane != "storm" {
			t.Errorf("lane %q", lane)
		}
		r.pass(2 * settle)
		if a, b := r.deleted("n1", 10, 100, 2), r.deleted("n2", 10, 100, 2); a != 90 || b != 90 {
			t.Errorf("%d and %d of the storm were deleted twice", a, b)
		}
		r.wantDebts(t)
		r.wantMark(t, 100)
		r.wantCount(t, 0, "storms", "user")
	})
}

// Where the record does not say its place in its transaction, the rows of one that come one after another are counted.
func TestRowsAreCountedWhereNothingSaysThem(t *testing.T) {
	stormy(t, "{rows: 10}", func(t *testing.T, r *rig) {
		for o := range int64(30) {
			r.sendRow(o, "t1", 0)
		}
		r.sendRow(30, "t2", 0)
		synctest.Wait()
		if live := r.deleted("n1", 0, 30, 1); live != 10 || r.nodes.laneOf("n1 user:30") != "live" {
			t.Errorf("%d users live", live)
		}
		r.wantDebts(t, "storm user 10-30")
	})
}

// A user's own edit in the pool of a storm, and every edit of other pools, is deleted in the moment in which it comes, for as long as the storm
// lasts.
func TestEditsStayLiveInAStorm(t *testing.T) {
	stormy(t, "{rows: 10, pace: 100}", func(t *testing.T, r *rig) {
		r.mass(0, 2000)
		offset := int64(2000)
		for range 100 {
			r.pass(100 * time.Millisecond)
			r.sendRow(offset, fmt.Sprint("edit", offset), 0)
			synctest.Wait()
			for _, key := range []string{"n1 user", "n2 user", "n1 mail", "n2 mail"} {
				if lane := r.nodes.laneOf(fmt.Sprintf("%s:%d", key, offset)); lane != "live" {
					t.Fatalf("%s:%d is in lane %q as it comes", key, offset, lane)
				}
			}
			offset++
		}
		if s := r.state(t); len(s.Debts) != 1 || s.Debts[0].From < 500 || *s.Debts[0].To != 2000 {
			t.Errorf("debts %+v", s.Debts)
		}
	})
}

// The pace is kept on the average of any seconds, and is another from the moment at which the file says so.
func TestStormIsPaidAtItsPace(t *testing.T) {
	stormy(t, "{rows: 10, pace: 400}", func(t *testing.T, r *rig) {
		r.w.opts.Shares = func(pool string) int { return map[string]int{"user": 4}[pool] } // so it is 100 a second here
		r.past.batch = 50
		r.mass(0, 10_000)
		r.nodes.take()
		began := time.Now()
		for range 20 {
			r.pass(time.Second)
			n := r.deleted("n1", 10, 10_000, 1) + r.deleted("n1", 10, 10_000, 2)
			least, most := 100*(time.Since(began).Seconds()-2), 100*(time.Since(began).Seconds()+1)
			if float64(n) < least || float64(n) > most {
				t.Fatalf("%d after %v, want %v to %v", n, time.Since(began), least, most)
			}
		}
		r.nodes.take()
		r.reload(t, stormFile("{rows: 10, pace: 8000, lane: replay}"))
		r.pass(3 * time.Second)
		n := r.deleted("n1", 10, 10_000, 1) + r.deleted("n1", 10, 10_000, 2)
		if n < 3000 || n > 8000 {
			t.Errorf("%d in three seconds at 2000 a second", n)
		}
		if lane := r.nodes.laneOf("n1 user:5000"); lane != "replay" {
			t.Errorf("lane %q", lane)
		}
		r.pass(10 * time.Second)
		r.wantDebts(t)
	})
}

// Two pools that storm in one partition: one that is paid slowly does not hold the other up.
func TestStormsOfTwoPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, strings.Replace(stormFile("{rows: 10, pace: 10}"), "\nmappings", "\n  mail: {rows: 10, pace: 10000}\nmappings", 1))
		r.w.Assign(users, 0, changelog.Restored{})
		r.mass(0, 1000)
		r.wantDebts(t, "storm mail 10-1000", "storm user 10-1000")
		r.pass(3 * settle)
		if s := r.state(t); len(s.Debts) != 1 || s.Debts[0].Name != "user" {
			t.Errorf("debts %+v", s.Debts)
		}
	})
}

// Copies of a storm are marked stale where its pool says so; the first rows are deleted.
func TestStormIsStale(t *testing.T) {
	stormy(t, "{rows: 10, stale: 30s}", func(t *testing.T, r *rig) {
		r.mass(0, 12)
		r.pass(gather + 2*settle)
		got := r.nodes.take()
		if !slices.Contains(got, "n1 user:9") || !slices.Contains(got, "n1 user:11 stale 30s") || slices.Contains(got, "n1 user:11") || slices.Contains(got, "n1 mail:11 stale 30s") {
			t.Errorf("%q", got)
		}
	})
}

// What comes while a pass runs stretches the debt: the pass goes on paying up to its own end, and the next one pays the rest.
func TestStormThatGoesOnIsPaidMeanwhile(t *testing.T) {
	stormy(t, "{rows: 10, pace: 1000000}", func(t *testing.T, r *rig) {
		r.mass(0, 100)
		r.pass(gather + settle/2) // first rounds
		for i := range int64(100) {
			r.sendRow(100+i, "mass0", 100+i)
		}
		r.wantDebts(t, "storm user 10-200")
		r.pass(settle / 2)
		r.wantDebts(t, "storm user 100-200")
		r.pass(2 * settle)
		if a, b := r.deleted("n1", 10, 200, 2), r.deleted("n2", 10, 200, 2); a != 190 || b != 190 {
			t.Errorf("%d and %d of the storm were deleted twice", a, b)
		}
		r.wantDebts(t)
	})
}

// A crash after the debt stood and before the commit: the next owner has the debt with the older offset, or neither, and deletes all.
func TestStormOfTheLastOwner(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprint("state kept: ", kept), func(t *testing.T) {
			stormy(t, "{rows: 10, pace: 1000}", func(t *testing.T, r *rig) {
				before := r.w.Finished([]changelog.Partition{users})[0]
				r.mass(0, 100)
				state := before.Keep() // it is taken after the watermark, so that it may be later
				r.w.Revoke([]changelog.Partition{users})
				if before.Offset != 0 || len(stateIn(t, state).Debts) != 1 {
					t.Fatalf("offset %d, %+v", before.Offset, stateIn(t, state).Debts)
				}
				next := newRigOf(t, stormFile("{rows: 10, pace: 1000}"))
				next.past, next.w.opts.Past = r.past, r.past
				was := changelog.Restored{}
				if kept {
					was = changelog.Restored{State: state.State, Journal: state.Journal}
				}
				next.keepSet()
				next.w.Assign(users, 0, was)
				next.mass(0, 100)
				next.pass(gather + 4*settle)
				next.wantDebts(t)
				next.wantMark(t, 100)
				for o := range int64(100) {
					if n := next.nodes.count(fmt.Sprintf("n2 user:%d", o)); n < 2 {
						t.Fatalf("user:%d was deleted %d times", o, n)
					}
				}
			})
		})
	}
}

// A hand-over in the middle of a storm: the next owner goes on from the mark.
func TestStormIsHandedOver(t *testing.T) {
	stormy(t, "{rows: 10, pace: 100}", func(t *testing.T, r *rig) {
		r.past.batch = 20
		r.mass(0, 1000)
		r.pass(5 * time.Second)
		p := r.w.Revoke([]changelog.Partition{users})[0]
		k := p.Keep()
		s := stateIn(t, k)
		if p.Offset != 1000 || len(s.Debts) != 1 || s.Debts[0].From < 200 || s.Debts[0].From > 600 {
			t.Fatalf("offset %d, debts %+v", p.Offset, s.Debts)
		}
		from := s.Debts[0].From
		next := newRigOf(t, stormFile("{rows: 10, pace: 1000}"))
		next.past, next.w.opts.Past = r.past, r.past
		next.keepSet()
		next.w.Assign(users, p.Offset, changelog.Restored{State: k.State, Journal: k.Journal})
		next.pass(gather + 5*time.Second)
		next.wantDebts(t)
		if n := next.deleted("n1", from, 1000, 2); int64(n) != 1000-from {
			t.Errorf("%d of %d", n, 1000-from)
		}
	})
}

// DELIVERY 6.3: the pass of a node that was off while a storm came leaves the storm's keys to that one, which reaches all copies.
func TestStormInTheDebtOfANode(t *testing.T) {
	stormy(t, "{rows: 10, pace: 100}", func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.mass(0, 500)
		r.pass(time.Second)
		r.nodes.take()
		r.nodes.turn("n1", true)
		r.pass(gather)
		var urgent int
		for o := range int64(500) {
			if r.nodes.laneOf(fmt.Sprintf("n1 user:%d", o)) == "urgent" {
				urgent++
			}
			if lane := r.nodes.laneOf(fmt.Sprintf("n1 mail:%d", o)); lane != "urgent" {
				t.Fatalf("mail:%d in lane %q", o, lane)
			}
		}
		if urgent > 150 { // those before the storm, and those that its own pass may have had while the node was off
			t.Errorf("%d users in the node's pass", urgent)
		}
		r.pass(10 * time.Second)
		r.wantDebts(t)
		for o := range int64(500) {
			for _, node := range []string{"n1", "n2"} {
				if r.nodes.count(fmt.Sprintf("%s user:%d", node, o)) == 0 && (node == "n1" || o > 150) {
					t.Fatalf("user:%d was not deleted on %s", o, node)
				}
			}
		}
	})
}

// Retention that overtakes a storm is a gap, durable before the debt passes it; the rest is deleted.
func TestRetentionOvertakesAStorm(t *testing.T) {
	stormy(t, "{rows: 10, pace: 1000}", func(t *testing.T, r *rig) {
		r.past.hold = make(chan struct{})
		r.mass(0, 100)
		r.past.mu.Lock()
		r.past.start = 60
		r.past.mu.Unlock()
		r.nodes.take()
		close(r.past.hold)
		r.pass(gather + 2*settle)
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].From != 10 || r.gaps.losses[0].To != 60 || !strings.Contains(r.gaps.losses[0].Why, "storm user") {
			t.Fatalf("gaps %+v", r.gaps.losses)
		}
		if n := r.deleted("n1", 60, 100, 2); n != 40 {
			t.Errorf("%d of 40", n)
		}
		r.wantDebts(t)
	})
}

// The age of what is owed is that of the record where the debt begins, and follows it.
func TestAgeOfAStorm(t *testing.T) {
	stormy(t, "{rows: 10, pace: 1}", func(t *testing.T, r *rig) {
		r.w.opts.Shares = func(string) int { return 1000 }
		r.past.batch = 1
		for i := range int64(20) {
			c := update(fmt.Sprint(i), "a", "a")
			c.Tx, c.Ordinal = "t", i
			r.sendAt(i, c, time.Now().Add(-time.Hour))
		}
		r.pass(10 * time.Second)
		if age := r.count(t, "owed_record_age_seconds", "storm", "user"); age < 3600 || age > 3620 {
			t.Errorf("%v s", age)
		}
		if since := r.count(t, "owed_oldest_seconds", "storm", "user"); since > 11 {
			t.Errorf("it has stood for %v s", since)
		}
		if s := r.state(t); s.Debts[0].At.IsZero() {
			t.Error("the next owner does not know it")
		}
	})
}

// What is over storm.rate is owed; transactions are counted by when they were written, so that a backlog is none. Small ones go first.
func TestRateOfAPool(t *testing.T) {
	stormy(t, "{rows: 0, rate: 200, pace: 1000}", func(t *testing.T, r *rig) {
		r.w.opts.Shares = func(string) int { return 2 } // so it is 100 a second here
		at, offset := time.Now(), int64(0)
		for second := range 10 {
			for i := range int64(300) { // a job of 300 rows a second in transactions of 100, and five edits
				c := update(fmt.Sprint(offset), fmt.Sprint(offset), fmt.Sprint(offset))
				c.Tx, c.Ordinal = fmt.Sprint(second, i/100), 50+i%100
				if i%60 == 0 {
					c.Tx, c.Ordinal = fmt.Sprint("edit", offset), 0
				}
				r.sendAt(offset, c, at.Add(time.Duration(offset)*time.Second/300))
				offset++
			}
		}
		r.pass(time.Second)
		const edits, mails = 50, 3000
		if live := r.count(t, "keys_total") - mails - edits - r.count(t, "deferred_keys_total", "storm", "user"); live < 800 || live > 1100 {
			t.Errorf("%v keys of the job went live in ten seconds of 100", live)
		}
		for o := int64(0); o < offset; o += 60 {
			if lane := r.nodes.laneOf(fmt.Sprintf("n1 user:%d", o)); lane != "live" && lane != "backlog" {
				t.Fatalf("edit %d is in lane %q", o, lane)
			}
		}
		r.pass(10 * time.Second)
		r.wantDebts(t)
	})
}

// A backlog that is read at once is counted by its own time.
func TestBacklogIsNoStorm(t *testing.T) {
	stormy(t, "{rows: 0, rate: 100}", func(t *testing.T, r *rig) {
		for o := range int64(1000) {
			r.sendAt(o, update(fmt.Sprint(o), "a", "a"), time.Now().Add(time.Duration(o-1000)*100*time.Millisecond))
		}
		r.wantDebts(t)
		r.wantCount(t, 0, "deferred_keys_total", "storm", "user")
	})
}

func TestBucket(t *testing.T) {
	at := time.Unix(1000, 0)
	var b bucket
	drain := func(small bool) (n int) {
		for b.take(at, 100, small, 1) {
			n++
		}
		return n
	}
	if n := drain(false); n != 50 {
		t.Errorf("large ones had %d of a full bucket", n)
	}
	if n := drain(true); n != 50 {
		t.Errorf("small ones had %d of theirs", n)
	}
	at = at.Add(100 * time.Millisecond)
	if n := drain(false); n != 0 {
		t.Errorf("large ones had %d before the small ones' part is full", n)
	}
	if n := drain(true); n != 10 {
		t.Errorf("small ones had %d of 10", n)
	}
	at = at.Add(time.Hour)
	if n := drain(true); n != 100 {
		t.Errorf("small ones had %d of both", n)
	}
	at = at.Add(-time.Hour) // a record of another clock
	if drain(true) != 0 {
		t.Error("a clock that goes back fills it")
	}
	b = bucket{}
	rows := 0
	for b.take(at, 0.01, true, 4000) {
		rows++
	}
	if rows != 2 {
		t.Error("a row with many keys overdraws each part once, and nothing goes behind it")
	}
}

// A storm is told once, where it begins first and where it is over last.
func TestStormIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, stormFile("{rows: 10}"))
		var mu sync.Mutex
		var events []string
		r.w.opts.Event = func(what, about string, detail map[string]string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, strings.TrimSpace(what+" "+about+" "+detail["topic"]+" "+detail["offset"]))
		}
		other := changelog.Partition{Topic: users.Topic, Number: 1}
		r.w.Assign(users, 0, changelog.Restored{})
		r.w.Assign(other, 0, changelog.Restored{})
		r.mass(0, 20)
		r.mass(20, 20)
		r.w.Records(other, r.past.records[:20])
		synctest.Wait()
		r.wantCount(t, 2, "storms", "user")
		r.pass(5 * settle)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"storm.began user shop.shop.users 10", "storm.over user"}; !slices.Equal(events, want) {
			t.Errorf("%q", events)
		}
		if n := strings.Count(r.log.String(), "a storm: "); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// A worker's own settings stand for pools that have none.
func TestStormOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.opts.Storm = mapping.Storm{Rows: 5}
		r.w.Assign(users, 0, changelog.Restored{})
		r.mass(0, 10)
		r.wantDebts(t, "storm user 5-10")
		if o := r.w.storms().of("user"); o.Pace != defaultPace || o.Lane != mapping.LaneStorm {
			t.Errorf("%+v", o)
		}
	})
}
