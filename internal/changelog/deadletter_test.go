package changelog_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func parked(t *testing.T, c *changelogtest.Cluster) (*kgo.Record, map[string]string) {
	t.Helper()
	cl, err := c.Options.Client(kgo.ConsumeTopics(c.Names.DeadLetter))
	must(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	fs := cl.PollRecords(ctx, 1)
	must(t, fs.Err())
	r := fs.Records()[0]
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	if _, err := time.Parse(time.RFC3339Nano, headers[changelog.HeaderTime]); err != nil {
		t.Error(err)
	}
	delete(headers, changelog.HeaderTime)
	return r, headers
}

func openDeadLetter(t *testing.T, c *changelogtest.Cluster) *changelog.DeadLetter {
	t.Helper()
	d, err := changelog.OpenDeadLetter(c.Options, c.Names.DeadLetter)
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

func TestParkKeepsTheRecordAndSaysWhy(t *testing.T) {
	c := changelogtest.Start(t)
	rec := &kgo.Record{
		Topic: "shop.shop.users", Partition: 3, Offset: 4711, Key: []byte(`{"id":1}`), Value: []byte("\xff\x00{"),
		Headers: []kgo.RecordHeader{{Key: "theirs", Value: []byte("x")}},
	}
	must(t, openDeadLetter(t, c).Park(t.Context(), rec, "decoding a record: not JSON"))
	r, headers := parked(t, c)
	want := map[string]string{
		"theirs": "x", changelog.HeaderTopic: "shop.shop.users", changelog.HeaderPartition: "3", changelog.HeaderOffset: "4711",
		changelog.HeaderReason: "decoding a record: not JSON",
	}
	if d := cmp.Diff(want, headers); d != "" {
		t.Error(d)
	}
	if string(r.Key) != `{"id":1}` || string(r.Value) != "\xff\x00{" {
		t.Errorf("%q %q", r.Key, r.Value)
	}
	if len(rec.Headers) != 1 {
		t.Error("the caller's record was changed")
	}
}

func TestParkANullKeyAndValue(t *testing.T) {
	c := changelogtest.Start(t)
	must(t, openDeadLetter(t, c).Park(t.Context(), &kgo.Record{Topic: "a"}, "why"))
	if r, _ := parked(t, c); r.Key != nil || r.Value != nil {
		t.Errorf("%q %q", r.Key, r.Value)
	}
}

func TestParkWhatIsTooLargeWithoutItsValue(t *testing.T) {
	c := changelogtest.Start(t)
	rec := &kgo.Record{Topic: "dbz.a.b", Partition: 1, Offset: 2, Key: []byte("k"), Value: make([]byte, 3<<20)}
	rand.NewChaCha8([32]byte{}).Read(rec.Value) // nothing that compresses
	must(t, openDeadLetter(t, c).Park(t.Context(), rec, strings.Repeat("long ", 1000)))
	r, headers := parked(t, c)
	if string(r.Key) != "k" || r.Value != nil || headers[changelog.HeaderLeftOut] != "headers,value" || headers[changelog.HeaderOffset] != "2" {
		t.Errorf("%q %d %v", r.Key, len(r.Value), headers[changelog.HeaderLeftOut])
	}
	if n := len(headers[changelog.HeaderReason]); n > 2048 {
		t.Errorf("a reason of %d bytes", n)
	}
}

func TestParkThatFailsIsAnError(t *testing.T) {
	c := changelogtest.Start(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	err := openDeadLetter(t, c).Park(t.Context(), &kgo.Record{Topic: "a", Partition: 1, Offset: 2}, "why")
	if err == nil || !strings.Contains(err.Error(), "parking a, partition 1, offset 2") {
		t.Error(err)
	}
}

// I7: a parked record keeps the headers that may name its schema.
func TestParkFromKeepsHeaders(t *testing.T) {
	c := changelogtest.Start(t)
	rec := changelog.Record{Offset: 4711, Value: []byte{0}, Headers: []envelope.Header{{Key: "apicurio.value.globalId", Value: []byte("12345678")}}}
	must(t, openDeadLetter(t, c).ParkFrom(t.Context(), changelog.Partition{Topic: "shop.shop.users", Number: 3}, rec, "why"))
	if _, headers := parked(t, c); headers["apicurio.value.globalId"] != "12345678" || headers[changelog.HeaderOffset] != "4711" {
		t.Errorf("%v", headers)
	}
}
