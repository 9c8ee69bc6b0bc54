package monitoring

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"invalidator/test/integration/services"
)

type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

// rules are those of every file.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(services.Root(), "deploy/prometheus/rules/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules: %v", err)
	}
	for _, f := range files {
		var file struct{ Groups []struct{ Rules []rule } }
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join("deploy/prometheus/rules", filepath.Base(f)))), &file); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, g := range file.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all
}

// What wakes somebody is one of five things: a lag, a gap, a source that nobody feeds, a node's debt and a slot that are about to be lost.
func TestFiveThingsPage(t *testing.T) {
	var pages []string
	for _, r := range rules(t) {
		switch r.Labels["severity"] {
		case "page":
			pages = append(pages, r.Alert)
		case "ticket":
		default:
			t.Errorf("%s: severity %q, want page or ticket", r.Alert, r.Labels["severity"])
		}
	}
	slices.Sort(pages)
	want := []string{"InvalidatorLag", "InvalidatorLogHasAGap", "InvalidatorNodeDebtOutlivesLog", "InvalidatorSlotNearsItsLimit", "InvalidatorSourceHasAGap",
		"InvalidatorSourceHasNoLeader", "InvalidatorSourceStands"}
	if diff := cmp.Diff(want, pages); diff != "" {
		t.Errorf("rules that page (-want +got):\n%s", diff)
	}
}

func TestRulesAskForWhatThereIs(t *testing.T) {
	all := exported(t)
	shown := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, r := range rules(t) {
		problems, result := wrong(r.Expr, all)
		for _, text := range r.Annotations {
			for _, m := range shown.FindAllStringSubmatch(text, -1) {
				problems = append(problems, notOf("$labels", m[1:], result)...)
			}
		}
		if m := r.Annotations["metric"]; m == "" || !strings.Contains(r.Expr, m) {
			problems = append(problems, "its annotation metric is "+m+", which its expr does not ask for")
		}
		for _, p := range problems {
			t.Errorf("%s: %s", r.Alert, p)
		}
	}
}

// Whoever is woken by an alert finds what to do: a heading, and the alert's name on the page that has it.
func TestRulesLeadToTheRunbook(t *testing.T) {
	const page = "docs/OPERATIONS.md"
	text := read(t, page)
	var anchors []string
	for line := range strings.Lines(text) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			anchors = append(anchors, anchor(heading))
		}
	}
	for _, r := range rules(t) {
		to, is := strings.CutPrefix(r.Annotations["runbook_url"], page+"#")
		if !is || !slices.Contains(anchors, to) {
			t.Errorf("%s: runbook_url is %q, which is no heading of %s", r.Alert, r.Annotations["runbook_url"], page)
		}
		if !strings.Contains(text, "`"+r.Alert+"`") {
			t.Errorf("%s does not name the alert %s", page, r.Alert)
		}
	}
	known := map[string]bool{}
	for _, r := range rules(t) {
		known[r.Alert] = true
	}
	for _, m := range regexp.MustCompile("`(Invalidator[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			t.Errorf("%s names the alert %s, which there is not", page, m[1])
		}
	}
}

// anchor is what a heading is called in links, as forges do it.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// Each alert has a story for promtool in which it does not fire, then does, and then ends.
func TestEachAlertHasItsStory(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(services.Root(), "deploy/prometheus/tests/*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, f := range files {
		var file struct {
			Tests []struct {
				Name  string
				Looks []struct {
					At     string `yaml:"eval_time"`
					Alert  string `yaml:"alertname"`
					Alerts []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join("deploy/prometheus/tests", filepath.Base(f)))), &file); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, test := range file.Tests {
			seen, last := map[string]string{}, map[string]time.Duration{}
			for _, look := range test.Looks {
				at, err := time.ParseDuration(look.At)
				if err != nil || at < last[look.Alert] {
					t.Errorf("%s: %q: %s is looked at at %q, after %s (%v)", filepath.Base(f), test.Name, look.Alert, look.At, last[look.Alert], err)
				}
				last[look.Alert] = at
				state := "-"
				if len(look.Alerts) > 0 {
					state = "+"
				}
				seen[look.Alert] += state
			}
			for alert, states := range seen {
				told[alert] = told[alert] || strings.Contains(squeezed(states), "-+-")
			}
		}
	}
	for _, r := range rules(t) {
		if !told[r.Alert] {
			t.Errorf("no test of deploy/prometheus/tests has %s quiet, then firing, then quiet again", r.Alert)
		}
	}
}

// squeezed is a text in which no letter follows itself.
func squeezed(s string) string { return string(slices.Compact([]rune(s))) }
