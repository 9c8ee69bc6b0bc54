package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/gap"
)

// parkBench has two parked records of one topic and one of another, and the gap of the first topic.
type parkBench struct {
	*gapBench
	ids []string // as they were parked
}

func newParkBench(t *testing.T) *parkBench {
	b := &parkBench{gapBench: newGapBench(t)}
	cl, err := b.kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopics(t.Context(), 4, 1, nil, "shop.users", "shop.orders"); err != nil {
		t.Fatal(err)
	}
	dead, err := changelog.OpenDeadLetter(b.kafka, b.names.DeadLetter)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	for _, r := range []*kgo.Record{
		{Topic: "shop.users", Partition: 3, Offset: 17, Key: []byte(`{"id":1}`), Value: []byte("not json"), Headers: []kgo.RecordHeader{{Key: "own", Value: []byte("x")}}},
		{Topic: "shop.users", Partition: 2, Offset: 4, Value: []byte{0xff, 0}},
		{Topic: "shop.orders", Partition: 0, Offset: 5, Key: []byte("k")},
	} {
		if err := dead.Park(t.Context(), r, "decoding: it is\nno JSON"); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range b.listed("--all") {
		b.ids = append(b.ids, line.ID)
	}
	if len(b.ids) != 3 {
		t.Fatalf("parked %v", b.ids)
	}
	b.record(gap.Gap{ID: "shop.users/parked", Source: "shop", Why: "parked", Pools: []string{"user"}})
	return b
}

func (b *parkBench) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	return invalidator(b.t, "", append([]string{args[0], args[1], "--config", b.config}, args[2:]...)...)
}

// listed is what deadletter list --json says.
func (b *parkBench) listed(more ...string) (all []deadletterJSON) {
	b.t.Helper()
	code, out, errs := b.run(append([]string{"deadletter", "list", "--json"}, more...)...)
	if code != 0 {
		b.t.Fatalf("exit %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		var r deadletterJSON
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// topic is what lies on a change topic.
func (b *parkBench) topic(name string) (all []changelog.TopicRecord) {
	b.t.Helper()
	if err := changelog.ReadTopic(b.t.Context(), b.kafka, name, time.Time{}, false, func(r changelog.TopicRecord) error {
		all = append(all, r)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return all
}

func (b *parkBench) gapState() gap.State {
	b.t.Helper()
	all, err := b.book.Load(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return gap.Find(all, "shop.users/parked").State()
}

func TestDeadletterListAndShow(t *testing.T) {
	b := newParkBench(t)
	var got []string
	for _, r := range b.listed("--topic", "shop.users") {
		if r.Parked.IsZero() || r.Reason != "decoding: it is\nno JSON" || r.Decision != nil {
			t.Errorf("%+v", r)
		}
		got = append(got, r.Topic)
	}
	if d := cmp.Diff([]string{"shop.users", "shop.users"}, got); d != "" {
		t.Error(d)
	}
	first := b.listed()[0]
	if first.Partition != 3 || first.Offset != 17 || *first.Key != `{"id":1}` || *first.Value != "not json" || first.Headers["own"] != "x" || len(first.Headers) != 1 {
		t.Errorf("%+v", first)
	}
	if second := b.listed()[1]; second.Key != nil || second.Value != nil || string(second.ValueBase64) != "\xff\x00" {
		t.Errorf("%+v", second)
	}
	if n := len(b.listed("--since", "1ns")); n != 0 {
		t.Errorf("%d records of the last nanosecond", n)
	}
	code, out, _ := b.run("deadletter", "list")
	if code != 0 || strings.Count(out, "\n") != 4 || !strings.Contains(out, "decoding: it is no JSON") {
		t.Errorf("exit %d: %s", code, out)
	}
	code, out, _ = b.run("deadletter", "show", b.ids[1])
	if code != 0 || !strings.Contains(out, "topic shop.users, partition 2, offset 4") || !strings.Contains(out, `"\xff\x00"`) {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, _, errs := b.run("deadletter", "show", "7/99"); code != 1 || !strings.Contains(errs, "no parked record") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A record that is retried lies where it came from, byte for byte, with a header that says so; it is listed no more, and its topic's gap
// is closed with its last record, without a flush.
func TestDeadletterRetryAndDiscard(t *testing.T) {
	b := newParkBench(t)
	code, out, _ := b.run("deadletter", "retry", b.ids[0], "--dry-run")
	if code != 0 || !strings.Contains(out, "would retry "+b.ids[0]) || len(b.topic("shop.users")) != 0 || len(b.listed()) != 3 {
		t.Errorf("exit %d: %s", code, out)
	}
	code, out, errs := b.run("deadletter", "retry", b.ids[0], "--by", "ann")
	if code != 0 || !strings.Contains(out, "retried by ann") {
		t.Fatalf("exit %d: %s %s", code, out, errs)
	}
	on := b.topic("shop.users")
	if len(on) != 1 || on[0].Partition != 3 || string(on[0].Key) != `{"id":1}` || string(on[0].Value) != "not json" ||
		len(on[0].Headers) != 2 || on[0].Headers[0].Key != "own" || on[0].Headers[1].Key != changelog.HeaderRetried || string(on[0].Headers[1].Value) != b.ids[0] {
		t.Errorf("written again: %+v", on)
	}
	if b.gapState() != gap.Open {
		t.Error("the gap is closed while a record waits")
	}
	if code, _, _ := b.run("deadletter", "retry", b.ids[0], "--by", "bob"); code != 0 || len(b.topic("shop.users")) != 1 {
		t.Errorf("exit %d; a decision was made twice", code)
	}
	code, out, errs = b.run("deadletter", "discard", "--topic", "shop.users", "--by", "bob", "--json")
	if code != 0 || !strings.Contains(out, `"outcome":"discarded","by":"bob"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("exit %d: %s %s", code, out, errs)
	}
	if b.gapState() != gap.Closed || len(b.requests()) != 0 {
		t.Errorf("the gap is %s, and a flush was asked for of %v", b.gapState(), b.requests())
	}
	if left := b.listed(); len(left) != 1 || left[0].Topic != "shop.orders" {
		t.Errorf("left %+v", left)
	}
	if all := b.listed("--all"); len(all) != 3 || all[0].Decision.By != "ann" || all[1].Decision.By != "bob" {
		t.Errorf("all %+v", all)
	}
	if code, _, errs := b.run("deadletter", "discard"); code != 2 {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// What was too large to park cannot be written again, and is said so; it can be discarded.
func TestDeadletterRetryOfWhatWasLeftOut(t *testing.T) {
	b := newParkBench(t)
	cl, err := b.kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	r := &kgo.Record{Topic: b.names.DeadLetter, Headers: []kgo.RecordHeader{
		{Key: changelog.HeaderTopic, Value: []byte("shop.orders")}, {Key: changelog.HeaderPartition, Value: []byte("1")}, {Key: changelog.HeaderOffset, Value: []byte("9")},
		{Key: changelog.HeaderLeftOut, Value: []byte("headers,key,value")}}}
	if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	code, _, errs := b.run("deadletter", "retry", "--topic", "shop.orders")
	if code != 1 || !strings.Contains(errs, "too large to park") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if left := b.listed("--topic", "shop.orders"); len(left) != 1 || left[0].LeftOut == "" {
		t.Errorf("left %+v", left)
	}
	if code, _, errs := b.run("deadletter", "discard", "--topic", "shop.orders"); code != 0 || len(b.listed("--topic", "shop.orders")) != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
}
