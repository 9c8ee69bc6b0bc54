//go:build integration

package debezium

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/mapping"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// kafka reads topics as any tool would.
type kafka struct{ adm *kadm.Client }

func openKafka(t *testing.T) kafka {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kafka{kadm.NewClient(cl)}
}

// ends are the ends of all topics whose names begin with prefix, as topic -> partition -> offset.
func (k kafka) ends(t *testing.T, prefix string) map[string]map[int32]kgo.Offset {
	t.Helper()
	listed, err := k.adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := slices.DeleteFunc(listed.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix+".") })
	if len(names) == 0 {
		return nil
	}
	offsets, err := k.adm.ListEndOffsets(t.Context(), names...)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return offsets.KOffsets()
}

// holds reports whether a topic holds any record.
func (k kafka) holds(t *testing.T, topic string) bool {
	t.Helper()
	prefix, _, _ := strings.Cut(topic, ".")
	for _, end := range k.ends(t, prefix)[topic] {
		if end.EpochOffset().Offset > 0 {
			return true
		}
	}
	return false
}

// read returns what all topics of a prefix hold now, each partition in its order.
func (k kafka) read(t *testing.T, prefix string) [][]*kgo.Record {
	t.Helper()
	missing := map[string]int64{} // topic/partition -> end of what is not read yet
	from := map[string]map[int32]kgo.Offset{}
	for topic, partitions := range k.ends(t, prefix) {
		for p, end := range partitions {
			if at := end.EpochOffset().Offset; at > 0 {
				missing[place(topic, p)] = at
				if from[topic] == nil {
					from[topic] = map[int32]kgo.Offset{}
				}
				from[topic][p] = kgo.NewOffset().AtStart()
			}
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumePartitions(from))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	read := map[string][]*kgo.Record{}
	for len(missing) > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("waited %s for the rest of %v", harness.Patience, missing)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at := place(r.Topic, r.Partition)
			read[at] = append(read[at], r)
			if r.Offset+1 >= missing[at] {
				delete(missing, at)
			}
		})
	}
	return slices.Collect(maps.Values(read))
}

func place(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

// keys are the distinct keys of each transaction.
type keys map[string]map[string]bool

// render decodes the records and maps them, as a worker does. A tombstone counts for the delete before it. A message is a key
// itself.
func render(t *testing.T, set *mapping.Set, partitions [][]*kgo.Record) keys {
	t.Helper()
	decoder, err := envelope.NewDecoder(envelope.Config{Select: set.Columns})
	if err != nil {
		t.Fatal(err)
	}
	all := keys{}
	for _, records := range partitions {
		var tx string
		for _, r := range records {
			c, ignored, err := decoder.Decode(envelope.Record{Topic: r.Topic, Key: r.Key, Value: r.Value})
			if err != nil {
				t.Errorf("%v\n%s", err, r.Value)
			}
			if err != nil || ignored != "" {
				continue
			}
			if c.Op != cdc.Tomb {
				tx = c.Tx
			}
			if all[tx] == nil {
				all[tx] = map[string]bool{}
			}
			var result mapping.Result
			set.Keys(c, &result)
			for _, k := range result.Keys {
				all[tx][k.Text] = true
			}
			if c.Op == cdc.Message {
				all[tx][fmt.Sprintf("message:%s:%s", c.Prefix, c.Content)] = true
			}
		}
	}
	return all
}

// inOrder are the transactions as they were committed: their ids are a GTID or a Postgres xid.
func (k keys) inOrder(t *testing.T) []string {
	number := func(tx string) uint64 {
		n, err := strconv.ParseUint(tx[strings.LastIndex(tx, ":")+1:], 10, 64)
		if err != nil {
			t.Errorf("transaction %q: %v", tx, err)
		}
		return n
	}
	return slices.SortedFunc(maps.Keys(k), func(a, b string) int { return cmp.Compare(number(a), number(b)) })
}
