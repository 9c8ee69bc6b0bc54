package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

const mailFile = `version: 1
team: profiles
pools: [user]
mappings:
  - name: user
    table: shop.users
    keys: ["user:{id}", "user:mail:{email}"]
`

// debezium is a record of shop.users as Debezium writes it; an empty image is null.
func debezium(connector, op, before, after string) []byte {
	null := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	return fmt.Appendf(nil, `{"before":%s,"after":%s,"source":{"connector":%q,"name":"s","db":"shop","schema":"shop","table":"users"},"op":%q}`,
		null(before), null(after), connector, op)
}

// keysOf handles one record and gives what n1 was told to delete, without its pool.
func (r *rig) keysOf(rec changelog.Record) (keys []string) {
	r.nodes.take()
	r.sendRaw(rec)
	synctest.Wait()
	for _, k := range r.nodes.take() {
		if key, ok := strings.CutPrefix(k, "n1 user:"); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

func (r *rig) wantKeys(t *testing.T, what string, rec changelog.Record, want ...string) {
	t.Helper()
	if got := r.keysOf(rec); !slices.Equal(got, want) {
		t.Errorf("%s: deleted %q, want %q", what, got, want)
	}
}

func (r *rig) wantCount(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	if got := r.count(t, name, labels...); got != want {
		t.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}

// A17: a NULL is no key, and is counted; it is no news for the log, which would hold one for every such row.
func TestA17NullIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, mailFile)
		r.w.Assign(users, 0, changelog.Restored{})
		const none, mail = `{"id":1,"email":null}`, `{"id":1,"email":"a@x.test"}`
		r.wantKeys(t, "insert", changelog.Record{Offset: 0, Value: debezium("mysql", "c", "", none)}, "1")
		r.wantKeys(t, "to a text", changelog.Record{Offset: 1, Value: debezium("mysql", "u", none, mail)}, "1", "mail:a@x.test")
		r.wantKeys(t, "back to NULL", changelog.Record{Offset: 2, Value: debezium("mysql", "u", mail, none)}, "1", "mail:a@x.test")
		r.wantKeys(t, "delete", changelog.Record{Offset: 3, Value: debezium("mysql", "d", none, "")}, "1")
		r.wantCount(t, 4, "skipped_total", "user", "null")
		if strings.Contains(r.log.String(), "gave no key") {
			t.Errorf("the log tells of NULLs: %s", r.log.String())
		}
	})
}

// B4 and C2: a column that the image lacks skips its template alone; the skip is counted, and named with what mends it.
func TestB4C2AbsentColumnIsCountedAndNamed(t *testing.T) {
	for _, tt := range []struct {
		name, connector, before, after, hint string
	}{
		{"B4 unchanged TOAST", "postgresql", "", `{"id":42,"email":"__debezium_unavailable_value"}`, `hint="ALTER TABLE shop.users REPLICA IDENTITY FULL"`},
		{"C2 minimal row image", "mysql", `{"id":42}`, `{"id":42}`, `hint="binlog_row_image = FULL, in every session, makes the log hold whole rows"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, mailFile)
				r.w.Assign(users, 0, changelog.Restored{})
				for offset := range int64(3) {
					r.wantKeys(t, "update", changelog.Record{Offset: offset, Key: []byte(`{"id":42}`), Value: debezium(tt.connector, "u", tt.before, tt.after)}, "42")
				}
				r.wantCount(t, 6, "skipped_total", "user", "absent") // an image each
				lines := slices.Collect(strings.Lines(r.log.String()))
				lines = slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "gave no key") })
				if len(lines) != 1 {
					t.Fatalf("told %d times in a minute: %q", len(lines), lines)
				}
				for _, part := range []string{"level=WARN", "source=shop", "shop.users", "user:mail:{email}", "column=email", "reason=absent", "offset=0", tt.hint} {
					if !strings.Contains(lines[0], part) {
						t.Errorf("%s lacks %s", lines[0], part)
					}
				}
			})
		})
	}
}

// C1: the three records of a changed key, which lie on two partitions, in either order.
func TestC1ChangedKeyOnTwoPartitions(t *testing.T) {
	old, gone, created := changelog.Record{Key: []byte(`{"id":42}`), Value: debezium("mysql", "d", `{"id":42,"email":"a"}`, "")},
		changelog.Record{Offset: 1, Key: []byte(`{"id":42}`)},
		changelog.Record{Key: []byte(`{"id":43}`), Value: debezium("mysql", "c", "", `{"id":43,"email":"a"}`)}
	other := changelog.Partition{Topic: users.Topic, Number: 1}
	for name, newFirst := range map[string]bool{"the old key first": false, "the new key first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, mailFile)
				r.w.Assign(users, 0, changelog.Restored{})
				r.w.Assign(other, 0, changelog.Restored{})
				send := []func(){
					func() { r.w.Records(users, []changelog.Record{old, gone}) },
					func() { r.w.Records(other, []changelog.Record{created}) },
				}
				if newFirst {
					slices.Reverse(send)
				}
				for _, f := range send {
					f()
					synctest.Wait()
				}
				got := r.nodes.take()
				for _, key := range []string{"n1 user:42", "n2 user:42", "n1 user:43", "n2 user:43", "n1 user:mail:a"} {
					if !slices.Contains(got, key) {
						t.Errorf("%s was not deleted: %q", key, got)
					}
				}
				time.Sleep(2 * settle)
				synctest.Wait()
				r.wantMark(t, 2)
			})
		})
	}
}

// I2: a delete with its tombstone behind it, and either alone, without alarm.
func TestI2TombstonesRaiseNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, mailFile)
		r.w.Assign(users, 0, changelog.Restored{})
		del, tomb := debezium("mysql", "d", `{"id":42,"email":"a"}`, ""), []byte(nil)
		r.wantKeys(t, "delete", changelog.Record{Offset: 0, Key: []byte(`{"id":42}`), Value: del}, "42", "mail:a")
		r.wantKeys(t, "its tombstone", changelog.Record{Offset: 1, Key: []byte(`{"id":42}`), Value: tomb}, "42")
		r.wantKeys(t, "a delete alone", changelog.Record{Offset: 2, Key: []byte(`{"id":43}`), Value: debezium("mysql", "d", `{"id":43,"email":"b"}`, "")}, "43", "mail:b")
		r.wantKeys(t, "a tombstone alone", changelog.Record{Offset: 3, Key: []byte(`{"id":44}`), Value: tomb}, "44")
		r.wantKeys(t, "nothing at all", changelog.Record{Offset: 4})
		r.wantCount(t, 2, "skipped_total", "user", "absent")
		r.wantCount(t, 1, "ignored_total", "empty")
		if len(r.parker.offsets()) > 0 || strings.Contains(r.log.String(), "gave no key") {
			t.Errorf("parked %v, log %s", r.parker.offsets(), r.log.String())
		}
	})
}

// I6: what is no row change is counted by its kind, and is no poison. A schema change that empties or drops a table is a truncate.
func TestI6NoRowChangesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, strings.Replace(mailFile, "pools: [user]", "pools: [user]\nunderivable: [feed]", 1))
		r.w.Assign(users, 0, changelog.Restored{})
		for i, value := range []string{
			`{"ts_ms":1}`,
			`{"status":"END","id":"1","event_count":1,"data_collections":null,"ts_ms":1}`,
			`{"source":{"connector":"mysql","name":"s","db":"shop","table":"users"},"ts_ms":1,"databaseName":"shop","schemaName":null,"ddl":"TRUNCATE TABLE users","tableChanges":[]}`,
			`{"source":{"connector":"mysql","name":"s","db":"shop","table":"users"},"ts_ms":1,"databaseName":"shop","schemaName":null,"ddl":"ALTER TABLE users ADD c INT","tableChanges":[]}`,
			// The row that asks for an incremental snapshot is one of a table that nobody maps.
			`{"before":null,"after":{"id":"ad-hoc","type":"execute-snapshot","data":"{}"},"source":{"connector":"mysql","name":"s","db":"shop","table":"debezium_signal"},"op":"c"}`,
			string(debezium("mysql", "r", "", `{"id":7,"email":"a"}`)),
			// A logical message is a change: its content, in base64, is a key.
			`{"op":"m","ts_ms":1,"source":{"connector":"postgresql","name":"s","db":"shop","schema":"","table":""},"message":{"prefix":"cache","content":"ZmVlZDo0Mg=="}}`,
			string(debezium("mysql", "d", `{"id":42,"email":null}`, "")),
		} {
			r.sendRaw(changelog.Record{Offset: int64(i), Key: []byte(`{"id":1}`), Value: []byte(value)})
		}
		time.Sleep(2 * settle)
		synctest.Wait()
		for _, kind := range []string{"heartbeat", "transaction", "ddl", "unmapped", "snapshot"} {
			r.wantCount(t, 1, "ignored_total", kind)
		}
		if got := r.flusher.take(); len(got) != 1 || got[0].Pool != "user" || got[0].Offset != 2 {
			t.Errorf("flushes %+v", got)
		}
		got := r.nodes.take()
		if n := len(got); n != 4 || !slices.Contains(got, "n1 feed:42") || !slices.Contains(got, "n2 user:42") {
			t.Errorf("deleted %q", got)
		}
		if parked := r.parker.offsets(); len(parked) > 0 {
			t.Errorf("parked %v", parked)
		}
		r.wantMark(t, 8)
	})
}

// I12: rows of snapshots delete nothing and are counted, in each form of the mark, and do not hold up the updates among them.
func TestI12SnapshotsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, mailFile)
		r.w.Assign(users, 0, changelog.Restored{})
		old := func(mark string) []byte {
			return []byte(strings.Replace(string(debezium("mysql", "c", "", `{"id":7,"email":"a"}`)), `"name":"s"`, `"name":"s","snapshot":`+mark, 1))
		}
		const rows, updates = 3000, 10
		offset, began := int64(0), time.Now()
		for i := range rows {
			value := debezium("mysql", "r", "", `{"id":7,"email":"a"}`)
			switch i % 3 {
			case 1:
				value = old(`"true"`)
			case 2:
				value = old(`"last"`)
			}
			r.sendRaw(changelog.Record{Offset: offset, Value: value})
			offset++
			if i%(rows/updates) == 0 {
				id := fmt.Sprint(1000 + i)
				r.sendRaw(changelog.Record{Offset: offset, Value: debezium("mysql", "u", `{"id":`+id+`,"email":"a"}`, `{"id":`+id+`,"email":"b"}`)})
				offset++
			}
		}
		synctest.Wait()
		got := r.nodes.take()
		for i := 0; i < rows; i += rows / updates {
			if !slices.Contains(got, fmt.Sprintf("n1 user:%d", 1000+i)) {
				t.Errorf("the update of %d waits", 1000+i)
			}
		}
		if slices.Contains(got, "n1 user:7") || time.Since(began) > 0 {
			t.Errorf("a snapshot's row is deleted, or something waited for %s", time.Since(began))
		}
		r.wantCount(t, rows, "ignored_total", "snapshot")
		r.wantCount(t, updates, "changes_total")
	})
}
