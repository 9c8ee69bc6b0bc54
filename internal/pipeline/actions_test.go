package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/sink"
)

// actions is a file with one entry of keys for the users.
func actions(readers, entries string) string {
	return `version: 1
team: profiles
pools: [user, page]
underivable: [feed]
readers: ` + readers + `
mappings:
  - name: user
    table: shop.users
    keys: [` + entries + `]
`
}

// count is a worker's counter or gauge, with the values of its labels by their names' order; 0 where it was never counted.
func (r *rig) count(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.w.opts.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if (f.GetName() == "invalidator_worker_"+name || f.GetName() == "invalidator_"+name) && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// A stale key is marked in every round: whoever won the refill of the first may have filled the old row.
func TestStaleKeysAreMarkedInEveryRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `"user:{id}", {key: "page:{id}", action: stale, stale_for: 20s}`))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "b@x.test"))
		for round := 1; round <= plainRounds; round++ {
			synctest.Wait()
			want := []string{"n1 page:1 stale 20s", "n1 user:1", "n2 page:1 stale 20s", "n2 user:1"}
			if got := r.nodes.take(); !slices.Equal(got, want) {
				t.Errorf("round %d\n got %q\nwant %q", round, got, want)
			}
			time.Sleep(settle)
		}
		synctest.Wait()
		r.wantMark(t, 1)
		if got := r.refresher.take(); got != nil {
			t.Errorf("nobody asked for a refresh: %v", got)
		}
	})
}

// Classic readers would take a stale value without a sign.
func TestStaleIsADeleteForClassicReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("classic", `{key: "page:{id}", action: stale}`))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "b@x.test"))
		synctest.Wait()
		if got := r.nodes.take(); !slices.Equal(got, []string{"n1 page:1", "n2 page:1"}) {
			t.Errorf("got %q", got)
		}
	})
}

// A hot key's copies are marked as the key itself is, and the watermark waits for marks as for deletes.
func TestStaleHotKeyWaitsForItsMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "page:{id}", action: stale, hot: 1}`))
		r.nodes.hold("n2", true)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "b@x.test"))
		time.Sleep(10 * settle)
		synctest.Wait()
		want := []string{"n1 page:1 stale 30s", "n1 page:1#1 stale 30s", "n2 page:1 stale 30s", "n2 page:1#1 stale 30s"}
		if got := r.nodes.take(); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		r.wantMark(t, 0)
		r.nodes.hold("n2", false)
		time.Sleep(2 * settle)
		synctest.Wait()
		r.wantMark(t, 1)
	})
}

// A refresh is asked for once a key, after the last round, so that no delete of this change takes away what is rebuilt.
func TestRefreshIsAskedForAfterTheLastRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "page:{id}", action: refresh}, {key: "user:{email}", action: refresh, stale_for: 5s}`))
		r.w.Assign(users, 0, changelog.Restored{})
		committed := time.Now().UTC()
		r.send(0, update("1", "a@x.test", "b@x.test"))
		synctest.Wait()
		want := []string{"n1 page:1", "n1 user:a@x.test stale 5s", "n1 user:b@x.test stale 5s", "n2 page:1", "n2 user:a@x.test stale 5s", "n2 user:b@x.test stale 5s"}
		if got := r.nodes.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := r.refresher.take(); got != nil {
			t.Fatalf("asked for before the last round: %v", got)
		}
		time.Sleep(settle)
		synctest.Wait()
		request := func(pool, key string) changelog.RefreshRequest {
			return changelog.RefreshRequest{
				V: 1, Key: key, Pool: pool, Team: "profiles", Mapping: "user", Source: "shop", Table: "shop.users",
				Row: json.RawMessage(`{"id":1}`), Reason: "update", Committed: committed, At: committed.Add(settle).Local(),
			}
		}
		if diff := cmp.Diff([]changelog.RefreshRequest{request("page", "page:1"), request("user", "user:a@x.test"), request("user", "user:b@x.test")}, r.refresher.take()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		r.wantMark(t, 1)
	})
}

// The watermark does not pass a change whose requests are not all written; they are tried for ever, each until it is.
func TestWatermarkWaitsForTheRefreshRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "user:{email}", action: refresh}`))
		r.refresher.fail.Store(11) // both of the first change, and later the rest of their tries
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "b@x.test"))
		r.send(1, update("2", "c@x.test", "c@x.test"))
		time.Sleep(settle + retryMin/2)
		synctest.Wait()
		r.wantMark(t, 0)
		r.nodes.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantMark(t, 2)
		var keys []string
		for _, q := range r.refresher.take() {
			keys = append(keys, q.Key)
		}
		slices.Sort(keys)
		if want := []string{"user:a@x.test", "user:b@x.test", "user:c@x.test"}; !slices.Equal(keys, want) {
			t.Errorf("written: %q", keys)
		}
		if again := r.nodes.take(); len(again) != 0 {
			t.Errorf("keys were deleted again for it: %q", again)
		}
		if n := strings.Count(r.log.String(), "writing a refresh request"); n == 0 || n > 5 {
			t.Errorf("the log says it %d times:\n%s", n, r.log.String())
		}
	})
}

// A revoke does not wait for requests that cannot be written: the next owner repeats the change.
func TestRevokeLeavesUnwrittenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "page:{id}", action: refresh}`))
		r.refresher.fail.Store(1 << 40)
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "b@x.test"))
		time.Sleep(time.Minute)
		began := time.Now()
		done := r.w.Revoke([]changelog.Partition{users})
		if done[0].Offset != 0 || time.Since(began) > 0 {
			t.Errorf("finished %v after %s", done, time.Since(began))
		}
	})
}

func TestRowKey(t *testing.T) {
	columns := cdc.NewColumns([]cdc.Column{{Name: "email"}, {Name: "id"}})
	row := &cdc.RowChange{Op: cdc.Update, Columns: columns, KeyColumns: []string{"id", "tenant"},
		Before: cdc.Row{{}, {Kind: cdc.Integer, S: "1"}}, After: cdc.Row{{Kind: cdc.Text, S: "a"}, {}}}
	for _, tc := range []struct{ key, want string }{
		{`{"id":18446744073709551615}`, `{"id":18446744073709551615}`},
		{`{"schema":{"type":"struct"},"payload":{"id":1}}`, `{"id":1}`},
		{`{"schema":"a","payload":"b"}`, `{"schema":"a","payload":"b"}`}, // columns that are called so
		{"", `{"id":"1"}`}, {"\x00\x00\x00\x00\x07\x02", `{"id":"1"}`},
		{`{"id":"` + strings.Repeat("x", maxRowKey) + `"}`, ""},
		{"null", "null"},
	} {
		if got := rowKey(row, []byte(tc.key)); string(got) != tc.want {
			t.Errorf("%.80q: %s, want %s", tc.key, got, tc.want)
		}
	}
}

// Keys in shadow are counted and sampled, and nothing is done with them: neither a delete, nor a request, nor a parked record.
func TestShadowDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "page:{email}", shadow: true, action: refresh}, "user:{id}"`))
		r.w.Assign(users, 0, changelog.Restored{})
		for i := range int64(100) {
			r.send(i, update("1", "a@x.test", fmt.Sprintf("b%d@x.test", i)))
		}
		r.send(100, update("1", "a@x.test", "a b"))
		time.Sleep(5 * settle)
		synctest.Wait()
		if got := r.nodes.take(); !slices.Equal(got, []string{"n1 user:1", "n2 user:1"}) || r.refresher.take() != nil || len(r.parker.offsets()) != 0 {
			t.Errorf("done: %q, parked %v", got, r.parker.offsets())
		}
		if n := r.count(t, "shadow_keys_total", "user", "page"); n != 201 {
			t.Errorf("%v keys in shadow were counted, want 201", n)
		}
		if log := r.log.String(); strings.Count(log, "in shadow") != 1 || !strings.Contains(log, "key="+sink.LoggedKey("page:a@x.test").LogValue().String()) {
			t.Errorf("want one sample in the log:\n%s", log)
		}
		r.wantMark(t, 101)
	})
}

// A condition that cannot be decided holds, is counted, and is named once.
func TestUndecidedConditionIsCountedAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "user:{id}", when: "op == 'update' && before.email != 'x'"}`))
		r.w.Assign(users, 0, changelog.Restored{})
		for i := range int64(3) {
			c := update("1", "a@x.test", "b@x.test")
			c.Before[1] = cdc.Value{} // the log leaves it out
			r.send(i, c)
		}
		time.Sleep(2 * settle)
		synctest.Wait()
		if got := r.nodes.take(); !slices.Equal(got, []string{"n1 user:1", "n2 user:1"}) {
			t.Errorf("deleted %q", got)
		}
		if n := r.count(t, "undecided_total", "user", "user"); n != 3 {
			t.Errorf("%v were counted, want 3", n)
		}
		if log := r.log.String(); strings.Count(log, "could not be decided") != 1 || !strings.Contains(log, "column=email") {
			t.Errorf("want it named once:\n%s", log)
		}
	})
}

// A key that a writer sends in its own transaction deletes exactly itself; one that is refused is skipped, counted and named, and its
// record is parked, once, with the reason.
func TestSentKeys(t *testing.T) {
	message := func(prefix, content string) *cdc.RowChange {
		return &cdc.RowChange{Source: "shop", Connector: cdc.Postgres, Op: cdc.Message, Prefix: prefix, Content: []byte(content), CommitTime: time.Now()}
	}
	outbox := func(key string) *cdc.RowChange {
		c := update("1", key, key)
		c.Op, c.Before = cdc.Insert, nil
		return c
	}
	raw := actions("meta", `{raw: "{email}"}`)
	for _, tc := range []struct {
		name    string
		change  *cdc.RowChange
		want    []string
		reason  string // the metric's; empty: it is taken, or nobody's
		skipped float64
		parked  string
	}{
		{"a message", message("cache", "feed:42"), []string{"n1 feed:42", "n2 feed:42"}, "", 0, ""},
		{"a message of a derivable pool", message("cache", "user:7"), []string{"n1 user:7", "n2 user:7"}, "", 0, ""},
		{"a message to somebody else", message("other", "feed:42"), nil, "", 0, ""},
		{"a message in nobody's pool", message("cache", "feedback:42"), nil, "pool", 1,
			`a logical message with the prefix cache and the key "feedback:42": the key's pool is not one of any file's`},
		{"a message of bytes", message("cache", "\x00\xff\n"), nil, "pool", 1, `the key "\x00\xff\n": the key's pool is not one of any file's`},
		{"a message of bytes in a pool", message("cache", "feed:\x00"), nil, "bad_key", 1, `the key "feed:\x00": a space or a control character`},
		{"a message that is too long", message("cache", "feed:"+strings.Repeat("x", 300)), nil, "bad_key", 1, "over 250 bytes"},
		{"a message of nothing", message("cache", ""), nil, "absent", 1, `the key ""`},
		{"an outbox row", outbox("feed:42"), []string{"n1 feed:42", "n2 feed:42"}, "", 0, ""},
		{"an outbox row in nobody's pool", outbox("feedback:42"), nil, "pool", 1,
			`table shop.users, column email, mapping user (users.yaml:9), template {email}: the key's pool is not one of the file's`},
		{"an outbox row that is changed", update("1", "feedback:1", "feedback:2"), nil, "pool", 2, "the key's pool is not one of the file's"},
		{"an outbox row of bytes", outbox("feed:\x01"), nil, "bad_key", 1, "table shop.users, mapping user (users.yaml:9), template {email}: a space or a control character"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, raw)
				r.w.Assign(users, 0, changelog.Restored{})
				r.send(0, tc.change)
				time.Sleep(2 * settle)
				synctest.Wait()
				if got := r.nodes.take(); !slices.Equal(got, tc.want) {
					t.Errorf("deleted %q, want %q", got, tc.want)
				}
				if n := r.count(t, "skipped_total", "", tc.reason) + r.count(t, "skipped_total", "feed", tc.reason); n != tc.skipped {
					t.Errorf("%v were skipped, want %v", n, tc.skipped)
				}
				if named := strings.Contains(r.log.String(), "reason="+tc.reason); named != (tc.skipped > 0) {
					t.Errorf("the log:\n%s", r.log.String())
				}
				if n := len(r.parker.offsets()); (n == 1) != (tc.skipped > 0) || n > 1 || !strings.Contains(r.parker.why(), tc.parked) || r.count(t, "parked_total", tc.reason) != float64(n) {
					t.Errorf("parked %d times: %s", n, r.parker.why())
				}
				r.wantMark(t, 1)
			})
		})
	}
}

// Whatever a record's key is, its request can be written.
func FuzzRowKey(f *testing.F) {
	for _, seed := range []string{`{"id":1}`, `{"schema":{},"payload":{"id":1}}`, `{"schema":{},"payload":`, "null", "", "\x00\x01", "{\"a\":\"\xff\"}", strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000)} {
		f.Add([]byte(seed))
	}
	row := &cdc.RowChange{Columns: cdc.NewColumns([]cdc.Column{{Name: "id"}}), KeyColumns: []string{"id"}, After: cdc.Row{{Kind: cdc.Text, S: "\xff"}}}
	f.Fuzz(func(t *testing.T, recordKey []byte) {
		key := rowKey(row, recordKey)
		if _, err := json.Marshal(changelog.RefreshRequest{Row: key}); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		if len(key) > maxRowKey {
			t.Errorf("%d bytes", len(key))
		}
	})
}
