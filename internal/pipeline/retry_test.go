package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/avro"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
)

const usersAvro = `{"type":"record","name":"Envelope","fields":[{"name":"after","type":{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"email","type":"string"}]}},` +
	`{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"table","type":"string"}]}},{"name":"op","type":"string"}]}`

// I7: while the registry is away, a record waits and is not parked; what was issued before gets its second round in time.
// Once it answers, the record and those behind it are deleted in their order.
func TestI7RegistryAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &away{err: unavailable{"away"}}
		r.w.opts.Sources[0].Decode.Schemas = s
		value, err := avro.MustParse(usersAvro).AppendEncode([]byte{0, 0, 0, 0, 9}, map[string]any{
			"after": map[string]any{"id": int64(2), "email": "c@x.test"}, "source": map[string]any{"connector": "mysql", "db": "shop", "table": "users"}, "op": "c",
		})
		if err != nil {
			t.Fatal(err)
		}
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		r.sendRaw(changelog.Record{Offset: 1, Value: value})
		r.send(2, update("3", "d@x.test", "d@x.test"))
		synctest.Wait()
		first := r.nodes.take()
		time.Sleep(settle)
		synctest.Wait()
		if second := r.nodes.take(); len(first) == 0 || !slices.Equal(first, second) {
			t.Errorf("rounds of what was issued before:\n%q\n%q", first, second)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		r.wantMark(t, 1)
		if parked, keys := r.parker.offsets(), r.nodes.take(); len(parked) != 0 || len(keys) != 0 {
			t.Fatalf("parked %v, deleted %q", parked, keys)
		}
		if n := s.asked(); n < 700 || n > 760 {
			t.Errorf("asked %d times in an hour, want once in %s", n, retryMax)
		}
		r.wantWaiting(t, 1, 1, 0)
		s.set(unavailable{"away, in other words"})
		time.Sleep(time.Hour)
		synctest.Wait()
		r.wantWaiting(t, 1, 2, 0)
		s.set(nil)
		time.Sleep(retryMax + settle)
		synctest.Wait()
		if keys := r.nodes.take(); !slices.Contains(keys, "n1 user:2") || !slices.Contains(keys, "n1 user:3") {
			t.Errorf("deleted %q", keys)
		}
		time.Sleep(settle)
		synctest.Wait()
		r.wantMark(t, 3)
		r.wantWaiting(t, 0, 2, 1)
	})
}

// I7: a partition that another worker takes over waits here no more.
func TestI7WaitEndsWithThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.opts.Sources[0].Decode.Schemas = &away{err: unavailable{"away"}}
		r.w.Assign(users, 0, changelog.Restored{})
		r.sendRaw(changelog.Record{Offset: 0, Value: []byte{0, 0, 0, 0, 9, 1}})
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantWaiting(t, 1, 1, 0)
		if p := r.w.Revoke([]changelog.Partition{users}); p[0].Offset != 0 {
			t.Errorf("the next owner starts at %d", p[0].Offset)
		}
		r.wantWaiting(t, 0, 1, 0)
	})
}

// I7: a worker that ends during a wait does not turn in circles when the next try, which it does not make, is due (time would stand
// still here), and what was begun gets its second round.
func TestI7DrainingDuringAWaitSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &away{err: unavailable{"away"}}
		r.w.opts.Sources[0].Decode.Schemas = s
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		r.sendRaw(changelog.Record{Offset: 1, Value: []byte{0, 0, 0, 0, 9, 1}})
		synctest.Wait()
		first := r.nodes.take()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		r.w.Drain(ctx)
		if took := time.Since(began); took != settle {
			t.Errorf("draining took %s, want %s", took, settle)
		}
		if second := r.nodes.take(); len(first) == 0 || !slices.Equal(first, second) {
			t.Errorf("rounds:\n%q\n%q", first, second)
		}
		r.wantMark(t, 1)
		r.wantWaiting(t, 0, 1, 0)
	})
}

// wantWaiting wants so many partitions to wait, and the log to have told of so many reasons to and ends of it.
func (r *rig) wantWaiting(t *testing.T, partitions float64, begun, over int) {
	t.Helper()
	log := r.log.String()
	if n, b, o := r.count(t, "partitions_waiting", "shop"), strings.Count(log, "waiting for the schema registry"), strings.Count(log, "the schema registry answers"); n != partitions || b != begun || o != over {
		t.Errorf("%v partitions wait, told %d and %d times; want %v, %d, %d\n%s", n, b, o, partitions, begun, over, log)
	}
}

// I7: an id that nobody knows is the record's own fault.
func TestI7UnknownSchemaIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.opts.Sources[0].Decode.Schemas = &away{err: context.DeadlineExceeded}
		r.w.Assign(users, 0, changelog.Restored{})
		r.sendRaw(changelog.Record{Offset: 0, Value: []byte{1}, Headers: []envelope.Header{{Key: "apicurio.value.globalId", Value: []byte{0, 0, 0, 0, 0, 0, 0, 7}}}})
		synctest.Wait()
		if parked := r.parker.offsets(); !slices.Equal(parked, []int64{0}) {
			t.Errorf("parked %v", parked)
		}
		r.wantMark(t, 1)
	})
}

type unavailable struct{ text string }

func (u unavailable) Error() string { return u.text }
func (unavailable) Retryable() bool { return true }

type away struct {
	mu  sync.Mutex
	err error
	n   int
}

func (a *away) Schema(context.Context, envelope.SchemaID) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	return usersAvro, a.err
}

func (a *away) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *away) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}
