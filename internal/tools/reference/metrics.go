package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/config"
	"invalidator/sink/memcachetest"
)

// metric is one metric, of whichever process shows it.
type metric struct {
	name, help string
	kind       dto.MetricType
	labels     []string
	of         []string // worker, feeder
}

// everything has on whatever adds metrics.
const everything = `
kafka: {brokers: [%q]}
cache: {ring: {file: ring.json}}
sources:
  - {name: fed, type: mysql, hosts: ['127.0.0.1:1'], user: u, include: [shop.*]}
  - {name: avro, topics: {pattern: 'avro\..*', format: avro, registry: {url: 'http://127.0.0.1:1'}}, first_start: latest}
`

const mappings = "version: 1\nteam: t\ncontact: c\npools: [user]\nmappings: [{name: user, table: shop.users, keys: ['user:{id}']}]\n"

// patience bounds the start of a process.
const patience = 30 * time.Second

// metrics runs a worker and a feeder on a broker and a node of this process, and asks what they show, by name.
func metrics(ctx context.Context) ([]metric, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "reference")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c, stop, err := services(dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	log := slog.New(slog.DiscardHandler)
	all := map[string]*metric{}
	started := make(chan struct{})
	worker := newRecorder()
	w := &app.Worker{Config: c, Log: log, Registry: worker, Started: func() { close(started) }}
	if err := showing(ctx, w.Run, started); err != nil {
		return nil, err
	}
	feeder, feeds := newRecorder(), idle{make(chan struct{})}
	f := &app.Feed{Config: c, Log: log, Registry: feeder, NewFeeder: func(config.Source, *slog.Logger) (cdc.Feeder, error) { return feeds, nil }}
	if err := showing(ctx, f.Run, feeds.started); err != nil {
		return nil, err
	}
	if err := errors.Join(worker.addTo(all, "worker"), feeder.addTo(all, "feeder")); err != nil {
		return nil, err
	}
	var out []metric
	for _, m := range all {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// showing runs a process until it has started, and ends it.
func showing(ctx context.Context, run func(context.Context) error, started <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case <-started:
	case err := <-done:
		return fmt.Errorf("a process ended before it had started: %w", cmp.Or(err, ctx.Err()))
	case <-time.After(patience):
		cancel()
		return errors.Join(fmt.Errorf("a process has not started within %s", patience), <-done)
	}
	cancel()
	return <-done
}

// services starts what a fleet needs, with its configuration in dir.
func services(dir string) (*config.Config, func(), error) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return nil, nil, err
	}
	node, err := memcachetest.Listen("127.0.0.1:0")
	if err != nil {
		broker.Close()
		return nil, nil, err
	}
	stop := func() { node.Close(); broker.Close() }
	ring := fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, node.Addr())
	err = errors.Join(os.Mkdir(filepath.Join(dir, "mappings.d"), 0o755),
		os.WriteFile(filepath.Join(dir, "mappings.d", "t.yaml"), []byte(mappings), 0o644),
		os.WriteFile(filepath.Join(dir, "ring.json"), []byte(ring), 0o644))
	if err != nil {
		stop()
		return nil, nil, err
	}
	c, err := config.Parse(filepath.Join(dir, "invalidator.yaml"), fmt.Appendf(nil, everything, broker.ListenAddrs()[0]))
	if err != nil {
		stop()
		return nil, nil, err
	}
	return c, stop, nil
}

// idle is a source in which nothing happens.
type idle struct{ started chan struct{} }

func (f idle) Run(ctx context.Context, _ cdc.Position, out cdc.Handler) error {
	if err := out.Started(ctx, cdc.Position{Pos: 1}); err != nil {
		return err
	}
	close(f.started)
	<-ctx.Done()
	return nil
}
func (idle) Confirm(cdc.Position)                          {}
func (idle) Check(context.Context) ([]cdc.Finding, error)  { return nil, nil }
func (idle) Restart(context.Context) (cdc.Position, error) { return cdc.Position{}, nil }

// recorder is a registry that remembers what was registered: one of several labels shows nothing before it has a value.
type recorder struct {
	*prometheus.Registry
	kinds map[string]dto.MetricType // by name; of who makes its metrics only when it is asked: none
	descs map[string]*prometheus.Desc
}

func newRecorder() *recorder {
	return &recorder{prometheus.NewRegistry(), map[string]dto.MetricType{}, map[string]*prometheus.Desc{}}
}

// Register implements prometheus.Registerer. Parts of one process register one after the other.
func (r *recorder) Register(c prometheus.Collector) error {
	if err := r.Registry.Register(c); err != nil {
		return err
	}
	descs := make(chan *prometheus.Desc)
	go func() { defer close(descs); c.Describe(descs) }()
	for d := range descs {
		name, _, _ := describe(d)
		r.descs[name] = d
		if kind, ok := kindOfCollector(c); ok {
			r.kinds[name] = kind
		}
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func kindOfCollector(c prometheus.Collector) (dto.MetricType, bool) {
	switch c.(type) {
	case *prometheus.CounterVec:
		return dto.MetricType_COUNTER, true
	case *prometheus.GaugeVec, prometheus.Gauge:
		return dto.MetricType_GAUGE, true
	case *prometheus.HistogramVec, prometheus.Histogram:
		return dto.MetricType_HISTOGRAM, true
	case prometheus.Counter:
		return dto.MetricType_COUNTER, true
	}
	return 0, false
}

// addTo adds what a process shows.
func (r *recorder) addTo(all map[string]*metric, of string) error {
	families, err := r.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		r.kinds[f.GetName()] = f.GetType()
	}
	for name, d := range r.descs {
		_, help, labels := describe(d)
		kind, known := r.kinds[name]
		if !known { // made when it is asked, and there is nothing now: its name says it, which a test holds to
			if kind = dto.MetricType_GAUGE; strings.HasSuffix(name, "_total") {
				kind = dto.MetricType_COUNTER
			}
		}
		m := all[name]
		if m == nil {
			m = &metric{name: name, help: help, kind: kind, labels: labels}
			all[name] = m
		}
		if m.help != help || m.kind != kind || !slices.Equal(m.labels, labels) {
			return fmt.Errorf("the metric %s is another one in a %s", name, of)
		}
		m.of = append(m.of, of)
	}
	return nil
}

var descText = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),.* variableLabels: \{(.*)\}\}$`)

// describe is what a descriptor says, which it tells only as a text.
func describe(d *prometheus.Desc) (name, help string, labels []string) {
	m := descText.FindStringSubmatch(d.String())
	if m == nil {
		return d.String(), "", nil // a test wants help texts
	}
	name, _ = strconv.Unquote(m[1])
	help, _ = strconv.Unquote(m[2])
	if m[3] != "" {
		labels = strings.Split(m[3], ",")
	}
	return name, help, labels
}
