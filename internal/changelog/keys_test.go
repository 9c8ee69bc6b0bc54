package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func openKeyWriter(t *testing.T, c *changelogtest.Cluster, topic string) *changelog.KeyWriter {
	t.Helper()
	w, err := changelog.OpenKeyWriter(c.Options, topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// sentKeys reads the topic of keys as workers do: each key with its partition, in the order of the log, and each record's keys.
func sentKeys(t *testing.T, c *changelogtest.Cluster) (all map[int32][]string, records [][]string) {
	t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Keys})
	if err != nil {
		t.Fatal(err)
	}
	all = map[int32][]string{}
	for _, r := range c.Records(t, c.Names.Keys) {
		row, ignored, err := d.Decode(envelope.Record{Topic: r.Topic, Key: r.Key, Value: r.Value})
		if err != nil || ignored != "" {
			t.Fatalf("%s: ignored %q, error %v", r.Value, ignored, err)
		}
		all[r.Partition] = append(all[r.Partition], row.Keys...)
		records = append(records, row.Keys)
	}
	return all, records
}

// Keys are written as workers read them: each once, those of one key in one partition and in order, in records of a bounded size.
func TestKeysAreWritten(t *testing.T) {
	c := changelogtest.Start(t)
	w := openKeyWriter(t, c, c.Names.Keys)
	var keys []string
	for i := range 9000 {
		keys = append(keys, fmt.Sprintf("user:%d", i))
	}
	for i := range 3000 { // each is six times as long in JSON
		keys = append(keys, fmt.Sprintf("%d%s", i, strings.Repeat("<", 240)))
	}
	keys = append(keys, "token:\x00\xff", "café", "user:1")
	var told []int
	written, err := w.Write(t.Context(), changelog.SentKeys{Keys: keys, By: "ann@ops", Reason: "wrong prices"}, func(n int) { told = append(told, n) })
	if err != nil {
		t.Fatal(err)
	}
	all, records := sentKeys(t, c)
	var got []string
	where := map[string]int32{}
	spans := []changelog.Span{}
	for p, of := range all {
		got = append(got, of...)
		for _, key := range of {
			if was, met := where[key]; met && was != p {
				t.Errorf("%s is in partitions %d and %d", key, was, p)
			}
			where[key] = p
		}
		spans = append(spans, changelog.Span{Partition: changelog.Partition{Topic: c.Names.Keys, Number: p}, To: c.PartitionInfo(c.Names.Keys, p).HighWatermark})
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(keys)), got); diff != "" {
		t.Fatal(diff)
	}
	slices.SortFunc(spans, func(a, b changelog.Span) int { return int(a.Number - b.Number) })
	if want := (changelog.KeysWritten{Keys: len(keys), Records: len(records), Spans: spans}); !cmp.Equal(want, written) || len(spans) != changelog.KeysPartitions {
		t.Error(cmp.Diff(want, written))
	}
	if n := len(told); n != len(records) || told[n-1] != len(keys) || !slices.IsSorted(told) {
		t.Errorf("told %v", told)
	}
	for _, r := range c.Records(t, c.Names.Keys) {
		if len(r.Value) > 256<<10+200 {
			t.Errorf("a record of %d bytes", len(r.Value))
		}
	}
	for _, of := range records {
		if len(of) > 500 {
			t.Errorf("a record of %d keys", len(of))
		}
	}
}

// The places of all that is sent at once go on from record to record, so that workers see how much it is.
func TestKeysHavePlaces(t *testing.T) {
	c := changelogtest.Start(t)
	w := openKeyWriter(t, c, c.Names.Keys)
	var keys []string
	for i := range 20_000 {
		keys = append(keys, fmt.Sprintf("k:%d", i))
	}
	if _, err := w.Write(t.Context(), changelog.SentKeys{Keys: keys}, nil); err != nil {
		t.Fatal(err)
	}
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Keys})
	if err != nil {
		t.Fatal(err)
	}
	var last []int64 // place of each record's last key
	n := 0
	for _, r := range c.Records(t, c.Names.Keys) {
		row, _, err := d.Decode(envelope.Record{Value: r.Value})
		if err != nil {
			t.Fatal(err)
		}
		last = append(last, row.Ordinal)
		n += len(row.Keys)
	}
	slices.Sort(last)
	if n != len(keys) || last[len(last)-1] != int64(n-1) || len(slices.Compact(last)) != len(last) {
		t.Errorf("%d keys, whose last places are %v", n, last)
	}
}

// A topic that is not there is named, with who makes it; a broker that refuses says so; one that is away is waited for until the context ends.
func TestKeysThatAreNotWritten(t *testing.T) {
	c := changelogtest.Start(t)
	if _, err := openKeyWriter(t, c, "other.keys").Write(t.Context(), changelog.SentKeys{Keys: []string{"a"}}, nil); err == nil || !strings.Contains(err.Error(), "run makes it") {
		t.Errorf("no topic: %v", err)
	}
	w := openKeyWriter(t, c, c.Names.Keys)
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range kreq.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.ProduceResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	if written, err := w.Write(t.Context(), changelog.SentKeys{Keys: []string{"a", "b"}}, nil); !errors.Is(err, kerr.TopicAuthorizationFailed) || written.Keys != 0 {
		t.Errorf("refused: %+v, %v", written, err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := w.Write(ctx, changelog.SentKeys{Keys: []string{"a"}}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("away: %v", err)
	}
}

// A group has passed spans when its commits have; a group that never was has passed none, and is waited for.
func TestCommitsAreAwaited(t *testing.T) {
	c := changelogtest.Start(t)
	adm := c.Admin(t)
	p := func(n int32) changelog.Partition { return changelog.Partition{Topic: c.Names.Keys, Number: n} }
	spans := []changelog.Span{{Partition: p(0), From: 10, To: 14}, {Partition: p(3), From: 0, To: 1}}
	steps := []struct {
		partition int32
		at        int64
		passed    int64
	}{{0, 5, 0}, {0, 12, 2}, {3, 1, 3}, {0, 99, 5}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	looks, next := 0, 0
	err := changelog.AwaitCommits(ctx, c.Options, "workers", spans, func(passed, all int64, err error) {
		if looks++; looks == 1 && (passed != 0 || err != nil) {
			t.Errorf("without a group: %d, %v", passed, err)
		}
		want := int64(0)
		if next > 0 {
			want = steps[next-1].passed
		}
		if passed != want || all != 5 {
			t.Errorf("after %d commits: %d of %d", next, passed, all)
		}
		if next < len(steps) {
			s := steps[next]
			next++
			if err := adm.CommitAllOffsets(ctx, "workers", kadm.OffsetsFromRecords(kgo.Record{Topic: c.Names.Keys, Partition: s.partition, Offset: s.at - 1})); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || next != len(steps) {
		t.Errorf("%v after %d commits", err, next)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := changelog.AwaitCommits(short, c.Options, "others", spans, func(int64, int64, error) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a group that never was: %v", err)
	}
}
