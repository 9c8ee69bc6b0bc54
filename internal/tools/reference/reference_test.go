package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// The page is what the code gives.
func TestPageIsWhatTheCodeGives(t *testing.T) {
	const root = "../../.."
	want, err := reference(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(root + "/" + page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(got), "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("%s is not what the code gives: go run ./internal/tools/reference (-page +code)\n%s", page, diff)
	}
}

// Every metric is ours by its name, has a help text, and is named as Prometheus wants it.
func TestMetricsAreNamedWell(t *testing.T) {
	all, err := metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 80 {
		t.Errorf("only %d metrics: has a process not started?", len(all))
	}
	for _, problem := range problems(t, all) {
		t.Error(problem)
	}
	if bad := problems(t, []metric{
		{name: "other_things", help: "h", kind: dto.MetricType_GAUGE}, {name: "invalidator_helpless", kind: dto.MetricType_GAUGE}, {name: "invalidator_seen_total", help: "h", kind: dto.MetricType_GAUGE},
		{name: "invalidator_took_milliseconds", help: "h", kind: dto.MetricType_GAUGE}, {name: "invalidator_seen", help: "h", kind: dto.MetricType_COUNTER},
	}); len(bad) != 5 {
		t.Errorf("of five bad ones these are found: %q", bad)
	}
}

func problems(t *testing.T, all []metric) (found []string) {
	t.Helper()
	var families []*dto.MetricFamily
	for _, m := range all {
		if !strings.HasPrefix(m.name, "invalidator_") {
			found = append(found, m.name+": not ours by its name")
		}
		one := &dto.Metric{}
		for _, l := range m.labels {
			value := "x"
			one.Label = append(one.Label, &dto.LabelPair{Name: &l, Value: &value})
		}
		f := &dto.MetricFamily{Name: &m.name, Type: &m.kind, Metric: []*dto.Metric{one}}
		if m.help != "" {
			f.Help = &m.help
		}
		families = append(families, f)
	}
	told, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range told {
		found = append(found, p.Metric+": "+p.Text)
	}
	return found
}

// What shows nothing yet is known by what was registered, and by its name where that is made only when it is asked.
func TestKindsOfWhatShowsNothing(t *testing.T) {
	r := newRecorder()
	label := []string{"pool"}
	r.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "invalidator_counted_total", Help: "h"}, label),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "invalidator_now", Help: "h"}, label),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "invalidator_took_seconds", Help: "a \"quoted\" } text"}, label),
		lazy{"invalidator_lazy_total", "invalidator_lazy"},
	)
	all := map[string]*metric{}
	if err := r.addTo(all, "worker"); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]dto.MetricType{
		"invalidator_counted_total": dto.MetricType_COUNTER, "invalidator_now": dto.MetricType_GAUGE, "invalidator_took_seconds": dto.MetricType_HISTOGRAM,
		"invalidator_lazy_total": dto.MetricType_COUNTER, "invalidator_lazy": dto.MetricType_GAUGE,
	} {
		if m := all[name]; m == nil || m.kind != kind || !slices.Equal(m.labels, label) {
			t.Errorf("%s is %+v, want a %s", name, m, kind)
		}
	}
	if help := all["invalidator_took_seconds"].help; help != `a "quoted" } text` {
		t.Errorf("help %q", help)
	}
	other := newRecorder()
	other.MustRegister(prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "invalidator_now", Help: "another"}, label))
	if err := other.addTo(all, "feeder"); err == nil || !strings.Contains(err.Error(), "invalidator_now is another one in a feeder") {
		t.Errorf("one name for two metrics: %v", err)
	}
}

// lazy makes its metrics when it is asked, and has none now.
type lazy []string

func (l lazy) Describe(ch chan<- *prometheus.Desc) {
	for _, name := range l {
		ch <- prometheus.NewDesc(name, "h", []string{"pool"}, nil)
	}
}
func (lazy) Collect(chan<- prometheus.Metric) {}

// A key's row says its type, its default once, and its meaning in the words of a file.
func TestKeys(t *testing.T) {
	sections, err := configuration("../../config")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		section string
		key     key
	}{
		{"kafka", key{"partitions", "number", "8", "of a change topic that we make"}},
		{"kafka", key{"replication", "number", "0", "of topics that we make; default 0: three, or the number of brokers if fewer"}},
		{"kafka", key{"tls", "section", "", "absent: no TLS"}},
		{"cache.node", key{"queue", "size", "8MiB", "live keys waiting for one node, and an eighth of it in each other lane"}},
		{"cache.ring.etcd", key{"password", "secret", "", "password"}},
		{"sources[].tls", key{"key", "text", "", "its key"}},
		{"sources[]", key{"on_gap", "text", "stop", "stop (default): a gap stands until it is accepted; flush: it accepts itself, and asks for a flush"}},
		{"storm", key{"rows", "number", "10000", "rows of one transaction that are deleted at once; 0: all"}},
	} {
		i := slices.IndexFunc(sections, func(s section) bool { return slices.Contains(s.paths, want.section) })
		if i < 0 || !slices.Contains(sections[i].keys, want.key) {
			t.Errorf("%s has no %+v", want.section, want.key)
		}
	}
}
