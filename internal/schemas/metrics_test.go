package schemas

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/sr"
)

// What came of each question is counted under its source and a word of ours, whatever it was; a partition that was given up counts nothing.
func TestI7WhatIsAskedIsCounted(t *testing.T) {
	metrics := prometheus.NewRegistry()
	m, err := NewMetrics(metrics)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Options{Timeout: 100 * time.Millisecond})
	s := m.Count("shop", r.client)
	m.Count("orders", r.client)
	good, json := r.add(t, "r-value", sr.Schema{Schema: record}), r.add(t, "j-value", sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object"}`})
	ask := func(ctx context.Context, id int) { _, _ = s.Schema(ctx, number(id)) }
	ask(t.Context(), good)
	ask(t.Context(), good)
	ask(t.Context(), json)
	ask(t.Context(), 4711)
	r.advanced = patience + time.Second
	ask(t.Context(), 4711)
	ask(t.Context(), 4711)
	r.failing(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	ask(t.Context(), 4712)
	r.failing(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	ask(t.Context(), 4713)
	given, up := context.WithCancel(t.Context())
	up()
	ask(given, 4714)

	got := map[string]float64{}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, c := range f.GetMetric() {
			got[c.GetLabel()[1].GetValue()+" "+c.GetLabel()[0].GetValue()] = c.GetCounter().GetValue()
		}
	}
	want := map[string]float64{"shop ok": 2, "shop refused": 1, "shop not_yet": 1, "shop unknown": 2, "shop away": 2}
	for _, result := range results {
		want["orders "+result] = 0
	}
	if !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	if _, err := NewMetrics(metrics); err == nil {
		t.Error("registered twice")
	}
}
