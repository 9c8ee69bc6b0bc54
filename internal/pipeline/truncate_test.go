package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

const emptiedFile = `version: 1
team: profiles
pools: [user, page, config, staging]
mappings:
  - {name: user, table: shop.users, keys: ["user:{id}", "page:{id}", {key: "config:all", when: changed(email)}]}
  - {name: more, table: shop.users, keys: ["user:by-email:{email}"]}
  - {name: staging, table: shop.staging, on_truncate: ignore, keys: ["staging:{id}"]}
  - {name: config, table: shop.config, keys: [{key: "config:all", action: refresh}]}
`

// fakeFlusher keeps the requests, and fails or blocks as long as it is told to.
type fakeFlusher struct {
	fail  atomic.Int64 // how many requests more
	block atomic.Bool  // until ctx ends: a broker that is away
	tries atomic.Int64
	mu    sync.Mutex
	got   []FlushRequest
}

func (f *fakeFlusher) Flush(ctx context.Context, r FlushRequest) error {
	f.tries.Add(1)
	if f.block.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if f.fail.Add(-1) >= 0 {
		return errors.New("the broker is away")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, r)
	return nil
}

// take returns the requests since the last take.
func (f *fakeFlusher) take() []FlushRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.got
	f.got = nil
	return got
}

func ids(rs []FlushRequest) (ids []string) {
	for _, r := range rs {
		ids = append(ids, r.ID)
	}
	return ids
}

var truncatedAt = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func truncateOf(offset int64, table string) changelog.Record {
	return changelog.Record{Offset: offset, Time: truncatedAt, Value: fmt.Appendf(nil,
		`{"before":null,"after":null,"source":{"connector":"mysql","name":"shop","db":"shop","table":%q,"ts_ms":1796032799000},"op":"t"}`, table)}
}

// C6: a flush is asked for once a pool, the known key is deleted, and the watermark passes the record.
func TestC6TruncateAsksForAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, emptiedFile)
		r.w.Assign(users, 0, changelog.Restored{})
		r.sendRaw(truncateOf(0, "users"))
		synctest.Wait()
		request := func(pool string) FlushRequest {
			return FlushRequest{ID: "truncate/shop.shop.users/0/0/1796032800000/" + pool, Pool: pool, Source: "shop", Tables: []string{"shop.users"},
				Partition: users, Offset: 0, Committed: truncatedAt.Add(-time.Second)}
		}
		if diff := cmp.Diff([]FlushRequest{request("user"), request("page")}, r.flusher.take()); diff != "" {
			t.Error(diff)
		}
		if got := r.nodes.take(); !slices.Equal(got, []string{"n1 config:all", "n2 config:all"}) {
			t.Errorf("deleted %q", got)
		}
		r.wantMark(t, 0) // the key's second round
		time.Sleep(2 * settle)
		synctest.Wait()
		r.wantMark(t, 1)
		r.wantCount(t, 1, "truncates_total", "flush", "user")
		r.wantCount(t, 1, "truncates_total", "flush", "page")
		r.wantCount(t, 0, "truncates_total", "ignore", "user")
		if log := r.log.String(); !strings.Contains(log, `asked for a flush of its pools" source=shop tables=shop.users pools="user, page" topic=shop.shop.users partition=0 offset=0`) {
			t.Error(log)
		}
	})
}

// While the broker is away the partition stands before the truncate, tells it, and goes on when it is back.
func TestTruncateIsNotPassedBeforeItsRequestsAreWritten(t *testing.T) {
	for name, away := range map[string]func(*fakeFlusher, bool){
		"refused": func(f *fakeFlusher, on bool) {
			f.fail.Store(0)
			if on {
				f.fail.Store(1 << 40)
			}
		},
		"silent": func(f *fakeFlusher, on bool) { f.block.Store(on) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, emptiedFile)
				r.w.Assign(users, 0, changelog.Restored{})
				away(r.flusher, true)
				r.sendRaw(truncateOf(0, "users"))
				r.send(1, update("1", "a@x.test", "a@x.test"))
				time.Sleep(time.Minute)
				synctest.Wait()
				r.wantMark(t, 0)
				if got := r.nodes.take(); got != nil {
					t.Errorf("the partition went on: %q", got)
				}
				if n := r.flusher.tries.Load(); n < 3 {
					t.Errorf("%d tries in a minute", n)
				}
				if log := r.log.String(); !strings.Contains(log, "asking for a flush of pool user; nothing goes past this until it works") {
					t.Error(log)
				}
				r.wantCount(t, 0, "truncates_total", "flush", "user")
				away(r.flusher, false)
				time.Sleep(flushTry + insistMax + 3*settle)
				synctest.Wait()
				r.wantMark(t, 2)
				if got := ids(r.flusher.take()); len(got) != 2 {
					t.Errorf("asked for %q", got)
				}
			})
		})
	}
}

// A worker that dies between two requests, or before its commit, leaves the record to the next owner, who asks with the same ids.
func TestTruncateIsAskedForAgainUnderTheSameIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRigOf(t, emptiedFile)
		first.w.Assign(users, 7, changelog.Restored{})
		first.sendRaw(truncateOf(7, "users"))
		synctest.Wait()
		written := ids(first.flusher.take())

		second := newRigOf(t, emptiedFile)
		second.w.Assign(users, 7, changelog.Restored{})
		time.Sleep(time.Hour) // the id holds no time of the worker's
		second.sendRaw(truncateOf(7, "users"))
		synctest.Wait()
		if got := ids(second.flusher.take()); len(written) != 2 || !slices.Equal(got, written) {
			t.Errorf("%q, and then %q", written, got)
		}

		again := truncateOf(7, "users") // a topic that was made again has the same offsets
		again.Time = again.Time.Add(time.Millisecond)
		third := newRigOf(t, emptiedFile)
		third.w.Assign(users, 7, changelog.Restored{})
		third.sendRaw(again)
		synctest.Wait()
		for _, id := range ids(third.flusher.take()) {
			if slices.Contains(written, id) {
				t.Errorf("another record has the id %s, which is taken", id)
			}
		}
	})
}

// A revoke, and a drain that takes too long, end the waiting; the record is above the watermark.
func TestTruncateThatCannotBeAskedForEndsWithTheRevoke(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"revoke": func(r *rig) { r.w.Revoke([]changelog.Partition{users}) },
		"drain": func(r *rig) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			r.w.Drain(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, emptiedFile)
				r.flusher.block.Store(true)
				r.w.Assign(users, 0, changelog.Restored{})
				r.sendRaw(truncateOf(0, "users"))
				synctest.Wait()
				began := time.Now()
				p := r.w.partition(users)
				end(r)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %s", took)
				}
				if mark := p.mark.Load(); mark != 0 {
					t.Errorf("the watermark is %d", mark)
				}
			})
		})
	}
}

// on_truncate: ignore asks for nothing, and is counted and named; a table that nobody maps is neither.
func TestTruncateThatAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, emptiedFile)
		r.flusher.block.Store(true) // who asks stands
		r.w.Assign(users, 0, changelog.Restored{})
		r.sendRaw(truncateOf(0, "staging"))
		r.sendRaw(truncateOf(1, "nothing"))
		r.sendRaw(truncateOf(2, "staging"))
		synctest.Wait()
		r.wantMark(t, 3)
		r.wantCount(t, 2, "truncates_total", "ignore", "staging")
		r.wantCount(t, 1, "ignored_total", "unmapped")
		r.wantCount(t, 0, "parked_total", "undecodable")
		if n := strings.Count(r.log.String(), "its pools stay as they are"); n != 1 {
			t.Errorf("named %d times in a minute:\n%s", n, r.log.String())
		}
		if got := r.nodes.take(); got != nil {
			t.Errorf("deleted %q", got)
		}
	})
}

// A known key is rebuilt where its template says so, as of a table and of no row.
func TestTruncateAsksForARefreshOfAKnownKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, emptiedFile)
		r.w.Assign(users, 0, changelog.Restored{})
		rec := truncateOf(0, "config")
		rec.Key = []byte(`{"databaseName":"shop"}`)
		rec.Value = []byte(`{"source":{"connector":"mysql","name":"shop","db":"shop","table":null},"databaseName":"shop","ddl":"DROP TABLE config, staging","tableChanges":[]}`)
		r.sendRaw(rec)
		time.Sleep(3 * settle)
		synctest.Wait()
		got := r.refresher.take()
		if len(got) != 1 || got[0].Key != "config:all" || got[0].Reason != "truncate" || got[0].Table != "shop.config" || got[0].Row != nil {
			t.Errorf("%+v", got)
		}
		if got := r.flusher.take(); got != nil {
			t.Errorf("asked for a flush: %+v", got)
		}
		r.wantMark(t, 1)
	})
}

// I6: a schema change that drops several tables, or a whole database, is one truncate of what is mapped of them.
func TestI6SchemaChangeAsksForFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, emptiedFile)
		r.w.Assign(users, 0, changelog.Restored{})
		for i, c := range []struct{ ddl, tables, pools string }{
			{"DROP TABLE staging, nothing, `users`", "shop.staging shop.users", "user page"},
			{"DROP DATABASE shop", "shop.*", "user page"},
			{"ALTER TABLE users ADD c INT", "", ""},
		} {
			r.sendRaw(changelog.Record{Offset: int64(i), Key: []byte(`{"databaseName":"shop"}`), Value: fmt.Appendf(nil,
				`{"source":{"connector":"mysql","name":"shop","db":"shop","table":null},"databaseName":"shop","ddl":%q,"tableChanges":[]}`, c.ddl)})
			synctest.Wait()
			var pools []string
			for _, q := range r.flusher.take() {
				if pools = append(pools, q.Pool); strings.Join(q.Tables, " ") != c.tables {
					t.Errorf("%s: %q", c.ddl, q.Tables)
				}
			}
			if got := strings.Join(pools, " "); got != c.pools {
				t.Errorf("%s: asked for %s, want %s", c.ddl, got, c.pools)
			}
		}
		time.Sleep(3 * settle)
		synctest.Wait()
		r.wantMark(t, 3)
		r.wantCount(t, 1, "ignored_total", "ddl")
		r.wantCount(t, 2, "truncates_total", "ignore", "staging")
	})
}

// What is no truncate asks for nothing.
func TestOtherChangesAskForNoFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, emptiedFile)
		r.flusher.block.Store(true)
		r.w.Assign(users, 0, changelog.Restored{})
		r.sendRaw(truncateOf(0, "staging")) // whose result is used again
		r.send(1, update("1", "a@x.test", "b@x.test"))
		r.sendRaw(changelog.Record{Offset: 2, Key: []byte(`{"id":1}`)})
		r.send(3, &cdc.RowChange{Source: "shop", Connector: cdc.Postgres, Op: cdc.Message, Prefix: "cache", Content: []byte("user:9")})
		time.Sleep(3 * settle)
		synctest.Wait()
		r.wantMark(t, 4)
		if n := r.flusher.tries.Load(); n != 0 {
			t.Errorf("%d tries", n)
		}
	})
}
