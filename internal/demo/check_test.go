package demo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

var testTime = time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)

func TestTheCheckFindsAStaleCopy(t *testing.T) {
	server := memcachetest.Start(t)
	nodes := fleet{newNode("m1", server.Addr(), "a")}
	defer nodes.close()
	server.Set("user:1", "old")
	server.Set("user:2", "new")
	server.Set("user:3", notFound)
	server.Set("user:4", "of a row that is gone")
	var copies []sink.Copy
	for _, key := range []string{"user:1", "user:2", "user:3", "user:4", "user:5"} {
		copies = append(copies, sink.Copy{Node: server.Addr(), Key: key})
	}
	held, err := nodes.look(copies)
	if err != nil {
		t.Fatal(err)
	}
	v := judge(copies, held, map[string]string{"user:1": "new", "user:2": "new", "user:5": "new"})
	want := verdict{equal: 2, absent: 1, stale: []offender{
		{copies[0], "old", "new"},
		{copies[3], "of a row that is gone", notFound},
	}}
	if d := cmp.Diff(want, v, cmp.AllowUnexported(verdict{}, offender{})); d != "" {
		t.Error(d)
	}
}

func TestTheCheckFindsAMissingCopy(t *testing.T) {
	server := memcachetest.Start(t)
	nodes := fleet{newNode("m1", server.Addr(), "a")}
	defer nodes.close()
	there, gone := sink.Copy{Node: server.Addr(), Key: "user:1"}, sink.Copy{Node: server.Addr(), Key: "user:2"}
	filled := map[sink.Copy]string{there: "a", gone: "b"}
	for c, v := range filled {
		if err := nodes.set(c, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := nodes.forget([]string{"user:2"}); err != nil {
		t.Fatal(err)
	}
	held, err := nodes.look(copiesOf(filled))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]offender{{gone, "", "b"}}, lost(filled, held), cmp.AllowUnexported(offender{})); d != "" {
		t.Error(d)
	}
}

func TestAWaitSaysWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSight()
		s.observe(pipeline.Round{Partition: changelog.Partition{Topic: "t"}, Offset: 1, Number: 1, Of: 2})
		s.observe(pipeline.Round{Partition: changelog.Partition{Topic: "t"}, Offset: 1, Number: 2, Of: 2})
		if err := s.settled(t.Context(), time.Second, 1); err != nil {
			t.Error(err)
		}
		err := s.settled(t.Context(), time.Minute, 2)
		if err == nil || err.Error() != "waited 1m0s for all rounds of 2 changes; 1 have had them" {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.settled(ctx, time.Minute, 2); err != context.Canceled {
			t.Errorf("error %v, want context.Canceled", err)
		}
	})
}

// A partition that moves is handled again from its watermark: that is no new change, and its first round stays the first.
func TestAChangeHandledAgainIsSeenOnce(t *testing.T) {
	s := newSight()
	key := []mapping.Key{{Text: "user:1"}}
	r := pipeline.Round{Partition: changelog.Partition{Topic: "t"}, Offset: 1, Keys: key, Number: 1, Of: 2, Acked: testTime}
	s.observe(r)
	r.Acked = testTime.Add(time.Second)
	s.observe(r)
	got := s.since(0, map[string]bool{"user:1": true})
	if len(got) != 1 || !got[0].acked.Equal(testTime) || got[0].done {
		t.Errorf("seen %+v", got)
	}
	if got := s.since(s.mark(), map[string]bool{"user:1": true}); len(got) != 0 {
		t.Errorf("seen after the mark: %+v", got)
	}
}

func TestWrites(t *testing.T) {
	rows := []row{users.seed(1), users.seed(2)}
	for _, tt := range []struct {
		write   write
		sql     string
		keys    []string // of all changes
		records int
	}{
		{update(users, 1, 1, "name", "O'Neill"), "UPDATE users SET name = 'O''Neill' WHERE id = 1",
			[]string{"user:1", "user:by-email:ada.1@demo.test"}, 1},
		{update(users, 2, 2, "id", "3"), "UPDATE users SET id = 3 WHERE id = 2",
			[]string{"user:2", "user:by-email:ada.2@demo.test", "user:3"}, 2},
		{remove(users, 1, 2), "DELETE FROM users WHERE id BETWEEN 1 AND 2",
			[]string{"user:1", "user:by-email:ada.1@demo.test", "user:2", "user:by-email:ada.2@demo.test"}, 2},
		{insert(products, products.seed(9)), "INSERT INTO products (id, sku, title, price) VALUES (9, 'cup-9', 'A blue cup', 12.50)",
			[]string{"product:9", "product:by-sku:CUP-9"}, 1},
	} {
		if got := tt.write.sql(); got != tt.sql {
			t.Errorf("sql %s, want %s", got, tt.sql)
		}
		var keys []string
		records := 0
		for _, c := range tt.write.changes(rows) {
			keys = append(keys, c.keys()...)
			records += c.records()
		}
		if d := cmp.Diff(tt.keys, keys); d != "" || records != tt.records {
			t.Errorf("%s: %d records, want %d; keys: %s", tt.sql, records, tt.records, d)
		}
	}
}

func TestPercentile(t *testing.T) {
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	if p := percentile(times, 99); p != 198 {
		t.Errorf("p99 of 1 to 200 is %d", p)
	}
	if p := percentile(times[:1], 50); p != 1 {
		t.Errorf("the median of one time is %d", p)
	}
}

func TestDocument(t *testing.T) {
	if got, want := users.document(row{"1", `a"b`, "A", "B"}), `{"id":"1","email":"a\"b","name":"A","city":"B"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
