package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/obs"
	"invalidator/replay"
	"invalidator/sink/memcachetest"
)

const emptiedMapping = `version: 1
team: web
pools: [user, config]
mappings:
  - {name: user, table: shop.users, keys: ["user:{id}", "config:all"]}
`

// A truncate from its topic to the control topic: while that takes no request nothing is committed, and afterwards the request is
// there before the commit. A worker that reads the record again, since no commit came, repeats the id. It is answered by a flush of the pool.
func TestC6TruncateEndToEnd(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "dbz"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	controlTopic := changelog.NamesFor("").Control
	node := memcachetest.Start(t)
	for _, key := range []string{"user:1", "config:all"} {
		node.Set(key, "old")
	}
	dir := t.TempDir()
	write(t, dir, "ring.json", fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, node.Addr()))
	c := parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {settle: 100ms, ring: {file: ring.json}}\nsources: [{name: orders, topics: {pattern: 'dbz(\\..*)?'}, first_start: earliest}]\n", cluster.ListenAddrs()[0]))
	write(t, dir, "mappings.d/web.yaml", emptiedMapping)

	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	const truncate = `{"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users","ts_ms":1796032799000},"databaseName":"shop","ddl":"TRUNCATE TABLE users","tableChanges":[]}`
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "dbz", Key: []byte(`{"databaseName":"shop"}`), Value: []byte(truncate)}).FirstErr(); err != nil {
		t.Fatal(err)
	}

	var refuse atomic.Bool
	var refused atomic.Int64
	refuse.Store(true)
	cluster.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		control := cluster.TopicInfo(controlTopic)
		ofControl := slices.ContainsFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool {
			return t.Topic == controlTopic || control != nil && t.TopicID == control.TopicID
		})
		if !ofControl || !refuse.Load() {
			return nil, nil, false
		}
		refused.Add(1)
		return refusedProduce(req), nil, true
	})
	start := func() (*Worker, func()) {
		w := &Worker{Config: c, Log: quiet, Registry: obs.NewRegistry()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		return w, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	committed := func() int64 {
		offsets, err := adm.FetchOffsets(t.Context(), c.Kafka.Group)
		if err != nil {
			t.Fatal(err)
		}
		at, _ := offsets.Lookup("dbz", 0)
		return at.At
	}

	_, stop := start()
	waitFor(t, "the request to be refused twice", func() bool { return refused.Load() > 1 })
	stop()
	if at := committed(); at > 0 {
		t.Errorf("committed %d before the request was written", at)
	}
	if got := requests(t, cl, controlTopic); len(got) > 0 {
		t.Errorf("refused requests are there: %+v", got)
	}
	refuse.Store(false)
	w, stop := start()
	defer stop()
	waitFor(t, "the truncate to be committed", func() bool { return committed() == 1 })
	got := requests(t, cl, controlTopic)
	if len(got) != 1 {
		t.Fatalf("requests %+v", got)
	}
	r := got[0]
	at := fmt.Sprintf("truncate/dbz/0/0/%d/user", appended(t, cl).UnixMilli())
	want := replay.Cause{What: replay.Truncate, Source: "dbz", Tables: []string{"shop.users"}, Record: replay.Range{Topic: "dbz", From: 0, To: 1}, Committed: time.UnixMilli(1796032799000).UTC()}
	if r.ID != at || r.Action != replay.Flush || r.Target != (replay.Target{Pool: "user"}) || r.Cause == nil || fmt.Sprint(*r.Cause) != fmt.Sprint(want) || time.Since(r.At) > time.Minute {
		t.Errorf("the request: %+v, cause %+v; want id %s", r, r.Cause, at)
	}
	if _, there := node.Get("config:all"); there {
		t.Error("the key that needs no row is still there")
	}
	waitFor(t, "the flush of the pool", func() bool { _, there := node.Get("user:1"); return !there })
	if n := counter(t, w, "invalidator_worker_truncates_total"); n != 1 {
		t.Errorf("counted %v", n)
	}
}

// requests are what is on the control topic.
func requests(t *testing.T, cl *kgo.Client, topic string) (all []replay.Request) {
	t.Helper()
	for _, rec := range records(t, cl, topic) {
		d, err := replay.DecodeControl(rec.Value)
		if err != nil {
			t.Fatal(err)
		}
		r, is := d.(replay.Request)
		if !is {
			continue // a job that answers one
		}
		if r.ID != string(rec.Key) {
			t.Errorf("the key is %s, the id %s", rec.Key, r.ID)
		}
		all = append(all, r)
	}
	return all
}

func appended(t *testing.T, cl *kgo.Client) time.Time { return records(t, cl, "dbz")[0].Timestamp }

// records are those of a topic's partition 0, as far as it reaches.
func records(t *testing.T, cl *kgo.Client, topic string) (all []*kgo.Record) {
	t.Helper()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	if end.Offset <= 0 {
		return nil
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(cl.OptValue(kgo.SeedBrokers).([]string)...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for int64(len(all)) < end.Offset {
		fetches := reader.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}
