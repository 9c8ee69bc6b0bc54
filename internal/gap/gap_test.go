package gap

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*changelogtest.Cluster, *Book) {
	c := changelogtest.Start(t)
	b, err := OpenBook(c.Options, c.Names, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return c, b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *Book) list(t *testing.T) []*Case {
	t.Helper()
	all, err := b.Load(t.Context())
	must(t, err)
	return all
}

func TestIDs(t *testing.T) {
	at := cdc.Position{GTIDSet: "a:1-5"}
	id := FeederID("shop", at)
	if id != FeederID("shop", at) || !strings.HasPrefix(id, "shop/") || len(id) > len("shop/")+8 {
		t.Errorf("%q", id)
	}
	for _, other := range []string{
		FeederID("shop2", at), FeederID("shop", cdc.Position{GTIDSet: "a:1-6"}), FeederID("shop", at, "x"), FeederID("shop", at, "x", "y"), FeederID("shop", at, "xy"),
	} {
		if strings.TrimPrefix(other, "shop2") == strings.TrimPrefix(id, "shop") && !strings.HasPrefix(other, "shop2") {
			t.Errorf("%q twice", other)
		}
	}
	if FeederID("shop", at, "x", "y") == FeederID("shop", at, "xy") {
		t.Error("two losses have one id")
	}
	if got := WorkerID("shop.shop.users", 3, 500); got != "shop.shop.users/3/500" {
		t.Error(got)
	}
	if got := TableNames([]cdc.TableID{{Schema: "b"}, {Schema: "a", Table: "t"}, {Schema: "a", Table: "t"}}); !slices.Equal(got, []string{"a.t", "b.*"}) {
		t.Error(got)
	}
	if TableNames(nil) != nil {
		t.Error("all tables became some")
	}
}

// The records as docs/TOPICS.md shows them, and a worker's of before.
func TestRecordsAsTheyStand(t *testing.T) {
	c, b := open(t)
	store, err := changelog.OpenState(c.Options, c.Names.State)
	must(t, err)
	defer store.Close()
	put := func(key, value string) { must(t, store.Put(t.Context(), key, []byte(value))) }
	put("gap/shop.shop.users/3/500", `{"v":1,"source":"shop","topic":"shop.shop.users","partition":3,"from":100,"to":500,"why":"away","seen":"2026-11-30T10:00:00Z"}`)
	put("gap/shop/4f2a91c0", `{"v":2,"id":"shop/4f2a91c0","source":"shop","stops":true,"from":{"lsn":"0/16B3748"},"pools":["user"],"why":"the slot is lost","hint":"raise max_slot_wal_keep_size","seen":"2026-11-30T10:01:00Z"}`)
	put("gap-accepted/shop/4f2a91c0", `{"v":2,"id":"shop/4f2a91c0","by":"ann@ops","at":"2026-11-30T10:05:00Z","flush":true}`)
	put("gap-passed/shop/4f2a91c0", `{"v":2,"id":"shop/4f2a91c0","to":{"lsn":"0/17"},"requests":["shop/4f2a91c0/1b/user"],"begun":"2026-11-30T10:05:01Z","done":"2026-11-30T10:05:02Z"}`)
	all := b.list(t)
	if len(all) != 2 || all[0].State() != Open || all[0].Range == nil || all[0].Range.To != 500 || all[0].ID != "shop.shop.users/3/500" {
		t.Fatalf("%+v", all)
	}
	g := Find(all, "shop/4f2a91c0")
	if g.State() != Closed || !g.Stops || g.Acceptance.By != "ann@ops" || g.Passage.To.LSN != "0/17" {
		t.Errorf("%+v", g)
	}
	// An acceptance without its gap is of one that was removed.
	put("gap-accepted/shop/none", `{"v":2,"id":"shop/none","by":"ann","at":"2026-11-30T10:05:00Z","flush":true}`)
	if n := len(b.list(t)); n != 2 {
		t.Errorf("%d gaps", n)
	}
}

func TestWhatIsHalfUnderstoodIsAnError(t *testing.T) {
	for key, value := range map[string]string{
		"gap/shop/1":          `{"v":3,"id":"shop/1"}`,
		"gap/shop/2":          `{"v":2,"id":"shop/2","colour":"red"}`,
		"gap/shop/3":          `{"v":2,"id":"shop/4"}`,
		"gap/shop/5":          `{"v":1,"source":"shop","topic":"a","partition":0,"from":1,"to":2}`,
		"gap-accepted/shop/6": `{"v":1}`,
		"gap-passed/shop/7":   `[]`,
	} {
		t.Run(key, func(t *testing.T) {
			c, b := open(t)
			store, err := changelog.OpenState(c.Options, c.Names.State)
			must(t, err)
			defer store.Close()
			must(t, store.Put(t.Context(), key, []byte(value)))
			_, err = b.Load(t.Context())
			var bad *changelog.RecordError
			if !errors.As(err, &bad) || bad.Key != key {
				t.Errorf("%v", err)
			}
		})
	}
}

// Met again it is the same record: it keeps when it was first seen and what was decided, and its pools only grow.
func TestTheSameGapIsOneRecord(t *testing.T) {
	c, b := open(t)
	g := Gap{ID: "shop/1", Source: "shop", Stops: true, From: cdc.Position{Pos: 1}, Pools: []string{"user", "mail"}, Why: "purged"}
	first, err := b.Record(t.Context(), g, false)
	must(t, err)
	must(t, b.Accept(t.Context(), first, "ann", false))
	g.Pools = []string{"item"}
	again, err := b.Record(t.Context(), g, false)
	must(t, err)
	if again.ID != "shop/1" || !again.Seen.Equal(first.Seen) || !slices.Equal(again.Pools, []string{"item", "mail", "user"}) || again.State() != Accepted {
		t.Errorf("%+v", again)
	}
	// A second decision changes nothing.
	must(t, b.Accept(t.Context(), again, "bob", true))
	if a := b.list(t)[0].Acceptance; a.By != "ann" || a.Flush {
		t.Errorf("%+v", a)
	}
	before := len(c.Records(t, c.Names.State))
	if _, err = b.Record(t.Context(), g, false); err != nil || len(c.Records(t, c.Names.State)) != before {
		t.Errorf("nothing has changed, and it was written again: %v", err)
	}
}

// A paused old feeder that wakes up and writes its gap again, or its passage, neither opens nor takes back anything.
func TestALateWriterOpensNothingAnew(t *testing.T) {
	_, b := open(t)
	g := Gap{ID: "shop/1", Source: "shop", Stops: true, From: cdc.Position{Pos: 1}, Why: "purged"}
	c, err := b.Record(t.Context(), g, false)
	must(t, err)
	must(t, b.Accept(t.Context(), c, "ann", true))
	must(t, b.Pass(t.Context(), c, Passage{To: cdc.Position{Pos: 9}, Begun: time.Now(), Done: time.Now()}))
	g.V = version
	must(t, b.record(t.Context(), g))
	if s := b.list(t)[0].State(); s != Closed {
		t.Error(s)
	}
}

func TestAGapThatIsMetAgainAfterItWasClosed(t *testing.T) {
	_, b := open(t)
	g := Gap{ID: "shop/1", Source: "shop", From: cdc.Position{Pos: 1}, Why: "purged"}
	for _, want := range []string{"shop/1", "shop/1-2", "shop/1-3"} {
		c, err := b.Record(t.Context(), g, false)
		must(t, err)
		if c.ID != want || c.State() != Open {
			t.Errorf("%s %s, want %s", c.ID, c.State(), want)
		}
		must(t, b.Settle(t.Context(), c, "ann", false))
	}
	// On the way to a later position it is no other.
	c, err := b.Record(t.Context(), g, true)
	must(t, err)
	if c.ID != "shop/1" || c.State() != Closed {
		t.Errorf("%s %s", c.ID, c.State())
	}
}

// What a newer version wrote about one gap hides no other, and stops nobody who meets another.
func TestARecordThatCannotBeReadHidesNoOtherGap(t *testing.T) {
	c, b := open(t)
	store, err := changelog.OpenState(c.Options, c.Names.State)
	must(t, err)
	defer store.Close()
	here := Gap{ID: "shop/1", Source: "shop", Stops: true, From: cdc.Position{Pos: 1}, Why: "purged"}
	decided := Gap{ID: "shop/2", Source: "shop", Stops: true, From: cdc.Position{Pos: 2}, Why: "purged"}
	for _, g := range []Gap{here, decided} {
		_, err := b.Record(t.Context(), g, false)
		must(t, err)
	}
	for key, value := range map[string]string{
		"gap/bill/1":          `{"v":3,"id":"bill/1"}`,
		"gap/bill/2":          `{"v":2,"id":"shop/1","source":"bill"}`, // of another, by its own word
		"gap-accepted/shop/2": `{"v":3,"id":"shop/2"}`,
	} {
		must(t, store.Put(t.Context(), key, []byte(value)))
	}
	all, err := b.Load(t.Context())
	var bad *changelog.RecordError
	if !errors.As(err, &bad) || len(all) != 1 || all[0].ID != "shop/1" || all[0].Source != "shop" {
		t.Errorf("%v %+v", err, all)
	}
	for _, key := range []string{"gap/bill/1", "gap/bill/2", "gap-accepted/shop/2"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not told: %v", key, err)
		}
	}
	again, err := b.Record(t.Context(), here, false)
	must(t, err)
	must(t, b.Settle(t.Context(), again, "ann", true))
	_, err = b.Record(t.Context(), Gap{ID: "shop/3", Source: "shop", From: cdc.Position{Pos: 3}, Why: "purged"}, true)
	must(t, err)
	// What was decided of this one is not known: it is neither open nor another.
	if _, err := b.Record(t.Context(), decided, false); !errors.As(err, &bad) || bad.Key != "gap-accepted/shop/2" {
		t.Errorf("%v", err)
	}
}

// A session that logs statements for a day loses rows in every transaction: that is one gap to be answered, as long as nobody has.
func TestLossesOfAKindAreOneOpenGap(t *testing.T) {
	c, b := open(t)
	loss := func(at uint64, why string, pools ...string) *Case {
		c, err := b.Record(t.Context(), Gap{
			ID: FeederID("shop", cdc.Position{Pos: at}), Source: "shop", From: cdc.Position{Pos: at}, Tables: []string{"shop.users"}, Pools: pools, Why: why,
		}, true)
		must(t, err)
		return c
	}
	first := loss(1, "a statement", "user")
	for at := uint64(2); at <= 50; at++ {
		if got := loss(at, "a statement", "mail"); got.ID != first.ID {
			t.Fatalf("%+v", got)
		}
	}
	other := loss(51, "a partition was dropped")
	if all := b.list(t); len(all) != 2 || other.ID == first.ID {
		t.Fatalf("%+v", all)
	}
	if n := len(c.Records(t, c.Names.Status)); n != 2 {
		t.Errorf("told %d times", n)
	}
	// The first one met again after a crash does not make it shorter.
	loss(1, "a statement", "user")
	now := Find(b.list(t), first.ID)
	if now.From.Pos != 1 || now.Until.Pos != 50 || !slices.Equal(now.Pools, []string{"mail", "user"}) {
		t.Errorf("%+v", now)
	}
	must(t, b.Settle(t.Context(), now, "ann", true))
	// What is lost after the flush was asked for needs another one.
	if later := loss(52, "a statement", "user"); later.ID == first.ID || later.State() != Open {
		t.Errorf("%+v", later)
	}
	if all := b.list(t); len(all) != 3 {
		t.Errorf("%d gaps", len(all))
	}
}

// An id is four bytes of a hash: that another loss, closed or open, has the same one hides nothing.
func TestTwoLossesOfOneIDAreTwoGaps(t *testing.T) {
	_, b := open(t)
	first, err := b.Record(t.Context(), Gap{ID: "shop/1", Source: "shop", From: cdc.Position{Pos: 1}, Tables: []string{"a.b"}, Why: "x"}, true)
	must(t, err)
	must(t, b.Settle(t.Context(), first, "ann", true))
	second, err := b.Record(t.Context(), Gap{ID: "shop/1", Source: "shop", From: cdc.Position{Pos: 2}, Tables: []string{"a.b"}, Why: "x"}, true)
	must(t, err)
	third, err := b.Record(t.Context(), Gap{ID: "shop/1", Source: "shop", Stops: true, From: cdc.Position{Pos: 3}, Why: "x"}, false)
	must(t, err)
	if second.ID != "shop/1-2" || second.State() != Open || third.ID != "shop/1-3" {
		t.Errorf("%+v %+v", second, third)
	}
}

func TestRequestsForAFlush(t *testing.T) {
	c, b := open(t)
	g := &Gap{ID: "shop/1", Source: "shop", Tables: []string{"shop.users"}, Time: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	cause := &replay.Cause{What: replay.LostLog, Source: "shop", Tables: g.Tables, Committed: g.Time, Gap: "shop/1"}
	ask := func(to uint64) []string {
		t.Helper()
		ids, err := b.AskFlush(t.Context(), g, cdc.Position{Pos: to}, []string{"user", "mail"}, "ann")
		must(t, err)
		return ids
	}
	first := ask(7)
	if again := ask(7); !slices.Equal(first, again) {
		t.Errorf("%s and %s", first, again)
	}
	if later := ask(8); slices.Equal(first, later) {
		t.Error("a longer gap is not the same request")
	}
	for _, r := range c.Records(t, c.Names.Control) {
		rec, err := replay.DecodeControl(r.Value)
		must(t, err)
		if q := rec.(replay.Request); q.By != "ann" || q.Action != replay.Flush || q.Target.Pool == "" || q.ID != string(r.Key) || !cmp.Equal(q.Cause, cause) {
			t.Errorf("%+v %+v", q, q.Cause)
		}
	}
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := open(t)
		c, err := b.Record(t.Context(), Gap{ID: "shop/1", Source: "shop", From: cdc.Position{Pos: 1}, Why: "purged"}, false)
		must(t, err)
		begin := time.Now()
		if _, ok, err := b.Await(t.Context(), c.ID, time.Second, time.Minute); ok || err != nil || time.Since(begin) < time.Minute {
			t.Errorf("%t %v after %s", ok, err, time.Since(begin))
		}
		accepted := make(chan error, 1)
		go func() {
			time.Sleep(10 * time.Second)
			accepted <- b.Accept(context.Background(), c, "ann", true)
		}()
		begin = time.Now()
		a, ok, err := b.Await(t.Context(), c.ID, time.Second, time.Minute)
		if !ok || err != nil || a.By != "ann" || !a.Flush || time.Since(begin) > 12*time.Second {
			t.Errorf("%+v %t %v after %s", a, ok, err, time.Since(begin))
		}
		must(t, <-accepted)
	})
}

func TestClosedGapsAreForgottenAfterAWhile(t *testing.T) {
	_, b := open(t)
	for id, age := range map[string]time.Duration{"shop/1": Keep + time.Hour, "shop/2": Keep - time.Hour, "shop/3": 0} {
		// Each of a table of its own: a loss like one that is open would only lengthen that.
		c, err := b.Record(t.Context(), Gap{ID: id, Source: "shop", Tables: []string{id}, From: cdc.Position{Pos: 1}, Why: "purged", Seen: time.Now().Add(-2 * Keep)}, false)
		must(t, err)
		if age > 0 {
			must(t, b.Accept(t.Context(), c, "ann", true))
			must(t, b.Pass(t.Context(), c, Passage{Begun: time.Now().Add(-age), Done: time.Now().Add(-age)}))
		}
	}
	for range 2 {
		must(t, b.Forget(t.Context()))
		all := b.list(t)
		if len(all) != 2 || Find(all, "shop/1") != nil {
			t.Errorf("%d gaps: one that nobody has answered stays, and one that was closed of late", len(all))
		}
	}
}

func FuzzDecodeGap(f *testing.F) {
	f.Add([]byte(`{"v":1,"source":"shop","topic":"t","partition":3,"from":-1,"to":500,"why":"w","seen":"2026-11-30T10:00:00Z"}`))
	f.Add([]byte(`{"v":2,"id":"shop/4f2a91c0","source":"shop","stops":true,"from":{"lsn":"0/1"},"why":"w","seen":"2026-11-30T10:00:00Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := decodeGap(data)
		if err != nil {
			return
		}
		if g.V != version {
			t.Errorf("version %d", g.V)
		}
		text, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeGap(text); err != nil {
			t.Errorf("what was read cannot be written: %v\n%s", err, text)
		}
	})
}
