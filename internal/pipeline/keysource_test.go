package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/mapping"
)

const sentFile = `version: 1
team: profiles
pools: [user, mail]
readers: meta
storm:
  user: {rows: 10, pace: 1000}
mappings:
  - {name: user, table: shop.users, keys: ['user:{id}', {key: 'user:hot:{id}', hot: 2}, 'mail:{email}']}
`

// sending is a worker whose one partition is of the topic of keys.
func sending(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, sentFile)
		r.keepSet()
		r.w.opts.Sources = []*Source{KeySource(users.Topic)}
		r.w.Assign(users, 0, changelog.Restored{})
		synctest.Wait()
		test(t, r)
	})
}

// sendKeys sends a record of keys, the first of which has a place among all that are sent at once.
func (r *rig) sendKeys(offset, ordinal int64, keys ...string) {
	value, err := json.Marshal(map[string]any{"v": 1, "keys": keys, "ordinal": ordinal, "by": "ann@ops"})
	if err != nil {
		panic(err)
	}
	r.sendRaw(changelog.Record{Offset: offset, Key: []byte("free"), Value: value})
}

// REPLAY 5: a key that is sent is deleted twice on every copy, with as many hot copies as any template of its pool declares, and as the registry says.
// The watermark passes it then.
func TestSentKeyIsDeletedOnEveryCopy(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.views.Store(view(t, plainRing, map[string]int{"mail:a": 1}))
		r.pass(gather + settle)
		r.nodes.take()
		r.sendKeys(0, 0, "user:1", "mail:a")
		r.pass(0)
		want := []string{"n1 mail:a", "n1 mail:a#1", "n1 user:1", "n1 user:1#1", "n1 user:1#2", "n2 mail:a", "n2 mail:a#1", "n2 user:1", "n2 user:1#1", "n2 user:1#2"}
		if got := r.nodes.take(); !slices.Equal(got, want) {
			t.Errorf("first round\n got %q\nwant %q", got, want)
		}
		r.wantMark(t, 0)
		r.pass(settle)
		if got := r.nodes.take(); !slices.Equal(got, want) {
			t.Errorf("second round\n got %q\nwant %q", got, want)
		}
		r.wantMark(t, 1)
		r.wantCount(t, 0, "unclaimed_keys_total")
	})
}

// A key of nobody's pool is deleted all the same, counted, and named once in a while.
func TestSentKeyOfNobodysPool(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.sendKeys(0, 0, "usr:1", "user:2", "x")
		r.sendKeys(1, 0, "usr:2")
		r.pass(settle)
		r.wantTimes(t, 2, "n1 usr:1", "n2 usr:1", "n1 user:2", "n1 x", "n2 usr:2")
		r.wantMark(t, 2)
		r.wantCount(t, 3, "unclaimed_keys_total")
		if n := strings.Count(r.log.String(), "keys were sent whose pool no mapping file in force claims"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

// A key that memcached cannot hold is parked with its record; the others of the record are deleted.
func TestSentKeyThatNoNodeCanHold(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.sendKeys(0, 0, "user:1", "user:a b", "", strings.Repeat("k", 251), "mail:a")
		r.pass(settle)
		r.wantTimes(t, 2, "n1 user:1", "n2 mail:a")
		r.wantMark(t, 1)
		if got := r.parker.offsets(); !slices.Equal(got, []int64{0}) {
			t.Errorf("parked %v", got)
		}
		for _, want := range []string{`a key that was sent: the key "user:a b": a space or a control character`, `the key "": it is empty`, "over 250 bytes"} {
			if !strings.Contains(r.parker.why(), want) {
				t.Errorf("parked for %q, which lacks %q", r.parker.why(), want)
			}
		}
	})
}

// What is no record of keys is parked, and passed.
func TestBadRecordsOfKeys(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		bad := []string{`{"v":2,"keys":["user:1"]}`, `user:1`, `{"v":1,"keys":["user:1"]`, `{"v":1}`}
		for i, value := range bad {
			r.sendRaw(changelog.Record{Offset: int64(i), Value: []byte(value)})
		}
		r.sendRaw(changelog.Record{Offset: 4, Key: []byte("user:1")})
		r.sendRaw(changelog.Record{Offset: 5, Value: []byte(`{"v":1,"keys":[]}`)})
		r.sendKeys(6, 0, "user:7")
		r.pass(settle)
		r.wantMark(t, 7)
		r.wantTimes(t, 2, "n1 user:7")
		r.wantTimes(t, 0, "n1 user:1")
		if got := r.parker.offsets(); !slices.Equal(got, []int64{0, 1, 2, 3, 4}) {
			t.Errorf("parked %v", got)
		}
	})
}

// A node that is away when keys are sent owes them, and is paid from the log when it is back, with the hot copies that its pool has.
func TestNodeOwesSentKeys(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n2", false)
		r.sendKeys(0, 0, "user:1", "x:1")
		r.pass(settle)
		r.wantMark(t, 1)
		r.wantDebts(t, "node n2 0-")
		r.nodes.take()
		r.nodes.turn("n2", true)
		r.pass(gather + settle)
		r.wantTimes(t, 2, "n1 user:1", "n2 user:1", "n2 user:1#1", "n2 user:1#2", "n2 x:1")
		r.wantDebts(t)
	})
}

// A paused pool's keys are owed until it is resumed, also where somebody sends them.
func TestPausedPoolOwesSentKeys(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.w.Hold([]string{"user"})
		r.sendKeys(0, 0, "user:1", "mail:a", "x")
		r.pass(settle)
		r.wantMark(t, 1)
		r.wantTimes(t, 0, "n1 user:1")
		r.wantTimes(t, 2, "n1 mail:a", "n1 x")
		r.wantDebts(t, "pool user 0-")
		r.w.Hold(nil)
		r.pass(gather + settle)
		r.wantTimes(t, 2, "n1 user:1", "n2 user:1#2")
		r.wantDebts(t)
	})
}

// A great many keys that are sent at once are a storm, like the rows of a great transaction: by their place, not by their record's. What is
// of nobody's pool has one storm, however many pools it names.
func TestManySentKeysAreAStorm(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		keys := func(pool string, from, n int) (ks []string) {
			for i := range n {
				ks = append(ks, fmt.Sprintf("%s:%d", pool, from+i))
			}
			return ks
		}
		r.sendKeys(0, 0, keys("user", 0, 10)...)
		r.sendKeys(1, 10, keys("user", 10, 10)...)
		r.sendKeys(2, 20, keys("mail", 0, 5)...)
		synctest.Wait()
		if lane := r.nodes.laneOf("n1 user:9"); lane != "live" {
			t.Errorf("lane %q", lane)
		}
		if lane := r.nodes.laneOf("n1 mail:4"); lane != "live" {
			t.Errorf("another pool's: lane %q", lane)
		}
		r.wantDebts(t, "storm user 1-2")
		r.pass(gather + time.Second + settle)
		if lane := r.nodes.laneOf("n1 user:19"); lane != "storm" {
			t.Errorf("lane %q", lane)
		}
		r.wantDebts(t)
		r.w.opts.Storm = mapping.Storm{Rows: 3, Pace: 1000}
		r.reload(t, sentFile+"# another text\n")
		r.sendKeys(3, 0, "a:1", "b:1", "c:1", "d:1")
		r.wantDebts(t, "storm {unclaimed} 3-4")
		r.pass(gather + time.Second + settle)
		r.wantTimes(t, 2, "n2 a:1", "n2 d:1")
		r.wantDebts(t)
		r.wantMark(t, 4)
	})
}

// A pool that is claimed only after its keys were owed, or no more, is paid all the same: by the set under which they came.
func TestSentKeysOutliveTheirSet(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.w.Hold([]string{"mail"})
		r.sendKeys(0, 0, "mail:a")
		r.wantDebts(t, "pool mail 0-")
		r.reload(t, strings.ReplaceAll(strings.ReplaceAll(sentFile, ", mail]", "]"), ", 'mail:{email}'", ""))
		r.w.Hold(nil)
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n1 mail:a", "n2 mail:a")
		r.wantDebts(t)
	})
}

// Hot copies that were declared when a node missed a key are paid too, though they are declared no more.
func TestCopiesThatWereDeclaredArePaid(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n2", false)
		r.sendKeys(0, 0, "user:1")
		r.wantDebts(t, "node n2 0-")
		r.reload(t, strings.ReplaceAll(sentFile, ", {key: 'user:hot:{id}', hot: 2}", ""))
		r.pass(2 * settle)
		r.nodes.take()
		r.nodes.turn("n2", true)
		r.pass(gather + 2*settle)
		for _, c := range []string{"n2 user:1", "n2 user:1#1", "n2 user:1#2"} {
			if r.nodes.count(c) < 2 {
				t.Errorf("%s was deleted %d times", c, r.nodes.count(c))
			}
		}
		r.wantDebts(t)
	})
}

// A change of the ring has what was sent done again, and so has a replay by hand, also one by commit time: of a key that was sent that is not known.
func TestSentKeysAreDoneAgain(t *testing.T) {
	sending(t, func(t *testing.T, r *rig) {
		r.see(t, record(7, "s0=n1,n2"))
		r.sendKeys(0, 0, "user:1", "mail:a", "x:1")
		r.pass(2 * settle)
		r.nodes.take()
		r.see(t, record(7, "s0=n1,n2"), record(8, "s0=n2,n5"))
		r.wantDebts(t, "epoch 7-8 0-1")
		r.pass(gather + settle)
		r.wantTimes(t, 2, "n2 user:1", "n5 user:1#1", "n5 user:1#2", "n5 mail:a", "n5 x:1")
		r.wantDebts(t)

		for i, window := range []Order{{Issued: true}, {From: time.Now().Add(-time.Hour), To: time.Now().Add(-time.Minute)}} {
			r.nodes.take()
			window.ID, window.Mark = fmt.Sprint("again", i), ControlMark{"c", int64(i + 1)}
			r.ordered(window, [2]int64{0, 1})
			r.pass(gather + settle)
			r.wantTimes(t, 2, "n2 user:1", "n5 user:1#2")
			r.wantTimes(t, 0, "n5 mail:a", "n5 x:1") // the target is pool user
			r.wantDebts(t)
		}
	})
}
