package monitoring

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"

	"invalidator/test/integration/services"
)

// metric is what the binary shows under a name.
type metric struct {
	kind   string // counter, gauge or histogram
	labels []string
}

// ofPrometheus are what Prometheus itself has.
var ofPrometheus = map[string]metric{
	"up":     {"gauge", nil},
	"ALERTS": {"gauge", []string{"alertname", "alertstate", "severity"}},
}

// ofTarget are the labels that every series has, of where it was scraped.
var ofTarget = []string{"job", "instance"}

// exported are the metrics of docs/REFERENCE.md.
func exported(t *testing.T) map[string]metric {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `(invalidator_[a-z0-9_]+)` \\| (counter|gauge|histogram) \\| ([a-z_, ]*) ?\\|")
	all := map[string]metric{}
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/REFERENCE.md"), -1) {
		all[m[1]] = metric{m[2], strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })}
	}
	if len(all) < 50 {
		t.Fatalf("docs/REFERENCE.md has %d metrics: its table is not what this test reads", len(all))
	}
	maps.Copy(all, ofPrometheus)
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(services.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wrong is what is wrong with an expression: a metric that there is not, a label that none of its metrics has, a rate of what is no
// counter. result are the labels that its series may have.
func wrong(expr string, all map[string]metric) (problems, result []string) {
	root, err := metricsql.Parse(expr)
	if err != nil {
		return []string{err.Error()}, nil
	}
	metricsql.VisitAll(root, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			problems = append(problems, wrongSelector(e, all)...)
		case *metricsql.AggrFuncExpr:
			for _, arg := range e.Args[len(e.Args)-1:] {
				problems = append(problems, notOf("by", e.Modifier.Args, labelsOf(arg, all))...)
			}
		case *metricsql.BinaryOpExpr:
			problems = append(problems, notOf("on", append(slices.Clone(e.GroupModifier.Args), e.JoinModifier.Args...), labelsOf(e, all))...)
		case *metricsql.FuncExpr:
			if e.Name == "rate" || e.Name == "increase" {
				problems = append(problems, wrongRate(e, all)...)
			}
		}
	})
	return problems, labelsOf(root, all)
}

// nameOf is the name of the series that a selector selects.
func nameOf(e *metricsql.MetricExpr) string {
	if len(e.LabelFilterss) == 1 {
		for _, f := range e.LabelFilterss[0] {
			if f.Label == "__name__" && !f.IsRegexp && !f.IsNegative {
				return f.Value
			}
		}
	}
	return "metric without a plain name"
}

// named finds the metric of a series, whose name may be of a histogram's part.
func named(series string, all map[string]metric) (m metric, ok bool) {
	if m, ok = all[series]; ok {
		return m, m.kind != "histogram" // which has no series of its own name
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(series, part)
		if m, ok = all[base]; cut && ok && m.kind == "histogram" {
			if part == "_bucket" {
				m.labels = append(slices.Clone(m.labels), "le")
			}
			return m, true
		}
	}
	return metric{}, false
}

func wrongSelector(e *metricsql.MetricExpr, all map[string]metric) []string {
	name := nameOf(e)
	m, ok := named(name, all)
	if !ok {
		return []string{"the binary exports no " + name}
	}
	var asked []string
	for _, f := range e.LabelFilterss[0] {
		if f.Label != "__name__" {
			asked = append(asked, f.Label)
		}
	}
	return notOf(name, asked, slices.Concat(ofTarget, m.labels))
}

func wrongRate(call *metricsql.FuncExpr, all map[string]metric) (problems []string) {
	metricsql.VisitAll(call, func(e metricsql.Expr) {
		if e, is := e.(*metricsql.MetricExpr); is {
			if m, ok := named(nameOf(e), all); ok && m.kind == "gauge" {
				problems = append(problems, fmt.Sprintf("%s of %s, which is a gauge", call.Name, nameOf(e)))
			}
		}
	})
	return problems
}

// labelsOf are the labels that the series of an expression may have: an aggregation leaves those that it groups by.
func labelsOf(e metricsql.Expr, all map[string]metric) (out []string) {
	switch e := e.(type) {
	case *metricsql.MetricExpr:
		m, _ := named(nameOf(e), all)
		return slices.Concat(ofTarget, m.labels)
	case *metricsql.AggrFuncExpr:
		if e.Name != "topk" && e.Name != "bottomk" {
			return e.Modifier.Args
		}
		return labelsOf(e.Args[len(e.Args)-1], all)
	case *metricsql.BinaryOpExpr:
		return append(slices.Clone(labelsOf(e.Left, all)), labelsOf(e.Right, all)...)
	case *metricsql.FuncExpr:
		for _, arg := range e.Args {
			out = append(out, labelsOf(arg, all)...)
		}
	case *metricsql.RollupExpr:
		return labelsOf(e.Expr, all)
	}
	return out
}

func notOf(what string, asked, have []string) (problems []string) {
	for _, l := range asked {
		if !slices.Contains(have, l) {
			problems = append(problems, fmt.Sprintf("%s: there is no label %s, only %s", what, l, strings.Join(have, ", ")))
		}
	}
	return problems
}

// What this test would miss, it would miss in silence: so what it must find is told here.
func TestWhatIsWrongWithAnExpression(t *testing.T) {
	all := map[string]metric{"open": {"gauge", []string{"source"}}, "seen_total": {"counter", nil}, "took_seconds": {"histogram", []string{"pool"}}}
	if problems, _ := wrong(`sum(open`, all); len(problems) == 0 {
		t.Error("an expression that does not end is well")
	}
	for expr, want := range map[string]string{
		`max by (source) (open) > 0`: "",
		`histogram_quantile(0.9, sum by (le, pool) (rate(took_seconds_bucket[5m])))`: "",
		`topk(3, open{source="a"}) unless on (source) open`:                          "",
		`opened > 0`:                            "the binary exports no opened",
		`took_seconds > 0`:                      "the binary exports no took_seconds",
		`seen_total_bucket > 0`:                 "the binary exports no seen_total_bucket",
		`open{pool="a"}`:                        "open: there is no label pool, only job, instance, source",
		`sum by (pool) (open)`:                  "by: there is no label pool, only job, instance, source",
		`sum by (source) (sum by (job) (open))`: "by: there is no label source, only job",
		`open * on (pool) open`:                 "on: there is no label pool, only job, instance, source, job, instance, source",
		`rate(open[5m])`:                        "rate of open, which is a gauge",
	} {
		if problems, _ := wrong(expr, all); strings.Join(problems, "; ") != want {
			t.Errorf("%s: %q, want %q", expr, problems, want)
		}
	}
}
