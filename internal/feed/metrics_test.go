package feed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered is every series as a scrape sees it: a histogram by its count.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m, err := NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		b, f := newBench(t), newFakeFeeder()
		b.metrics = m
		b.start(Source{Name: "shop", Feeder: f})
		f.commit(insert("1"), insert("2"))
		time.Sleep(time.Second)
		got := gathered(t, reg)
		for name, want := range map[string]float64{
			"invalidator_feed_records_total source=shop":   2,
			"invalidator_feed_source_state source=shop":    stateFeeding,
			"invalidator_feed_ack_seconds source=shop":     1,
			"invalidator_feed_failures_total source=shop":  0,
			"invalidator_feed_in_flight_bytes source=shop": 0,
		} {
			if n, ok := got[name]; !ok || n != want {
				t.Errorf("%s is %v, want %v", name, n, want)
			}
		}
		if got["invalidator_feed_bytes_total source=shop"] < 100 || got["invalidator_feed_position_commit_timestamp_seconds source=shop"] == 0 {
			t.Error(got)
		}
	})
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := NewMetrics(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(reg); err == nil {
		t.Error("a second set was taken")
	}
}
