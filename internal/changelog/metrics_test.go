package changelog_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
)

// A process's clients share their metrics, whose one label is the broker; they outlive a client, and are named as Prometheus wants it.
func TestClientMetrics(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	reg := prometheus.NewRegistry()
	o := changelog.Options{Brokers: cluster.ListenAddrs(), Metrics: changelog.NewMetrics(reg)}
	for range 3 {
		cl, err := o.Client(kgo.ConsumeTopics("a"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if fs := cl.PollFetches(t.Context()); fs.Err() != nil || fs.NumRecords() == 0 {
			t.Fatalf("%d records, %v", fs.NumRecords(), fs.Err())
		}
		cl.Close()
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if ls := m.GetLabel(); len(ls) != 1 || ls[0].GetName() != "node_id" {
				t.Errorf("%s has the labels %v", f.GetName(), ls)
			}
		}
	}
	if got["invalidator_kafka_produce_records_total"] != 3 || got["invalidator_kafka_fetch_records_total"] < 3 || got["invalidator_kafka_request_duration_e2e_seconds"] == 0 ||
		got["invalidator_kafka_connects_total"] < 3 {
		t.Errorf("got %v", got)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
