//go:build integration

package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/harness"
)

// topics reads every change topic of a pipeline, from its start, as any tool would: nothing here is the project's own code.
type topics struct {
	cl    *kgo.Client
	adm   *kadm.Client
	which *regexp.Regexp

	mu   sync.Mutex
	read []*kgo.Record
	next map[string]int64 // topic/partition -> offset behind what was read
}

func readTopics(t *testing.T, p *harness.Pipeline) *topics {
	t.Helper()
	which := regexp.MustCompile("^" + regexp.QuoteMeta(p.ID) + "-(mysql|mariadb|postgres)[.]")
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka), kgo.ConsumeRegex(),
		kgo.ConsumeTopics(which.String()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	r := &topics{cl: cl, adm: kadm.NewClient(cl), which: which, next: map[string]int64{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			records := cl.PollFetches(ctx).Records()
			r.mu.Lock()
			r.read = append(r.read, records...)
			for _, rec := range records {
				r.next[place(rec.Topic, rec.Partition)] = rec.Offset + 1
			}
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait(); cl.Close() })
	return r
}

func place(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

func (r *topics) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.read)
}

// all waits until everything that the topics hold now is read, and returns it, in the order of each partition.
func (r *topics) all(t *testing.T) []*kgo.Record {
	t.Helper()
	there, err := r.adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := slices.DeleteFunc(there.Names(), func(n string) bool { return !r.which.MatchString(n) })
	ends, err := r.adm.ListEndOffsets(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the topics to be read", func() (done bool, missing string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		ends.Each(func(e kadm.ListedOffset) {
			if at := r.next[place(e.Topic, e.Partition)]; at < e.Offset {
				missing = fmt.Sprintf("%s/%d at %d of %d", e.Topic, e.Partition, at, e.Offset)
			}
		})
		return missing == "", missing
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// change is a record as another tool sees it: Debezium's envelope, numbers as they are written.
type change struct {
	Before, After map[string]any
	Op            string
	Source        struct {
		Connector, Name, DB, Schema, Table string
	}
}

func parse(t *testing.T, r *kgo.Record) (c change) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.Value))
	d.UseNumber()
	if err := d.Decode(&c); err != nil {
		t.Fatalf("%s/%d@%d: %v\n%s", r.Topic, r.Partition, r.Offset, err, r.Value)
	}
	return c
}
