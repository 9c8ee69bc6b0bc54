package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"invalidator/test/integration/services"
)

type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID                 int
		Title, Description string
		GridPos            struct{ X, Y, W, H int }
		Targets            []struct{ Expr, LegendFormat string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(services.Root(), "deploy/grafana/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	all := map[string]dashboard{}
	for _, f := range files {
		var d dashboard
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &d)
		}
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all[filepath.Base(f)] = d
	}
	return all
}

var (
	variable = regexp.MustCompile(`\$(\w+)`)
	legend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
	values   = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
)

// A panel asks for what the binary exports, its legend for labels that the answer has, and a variable for one that the dashboard has.
func TestPanelsAskForWhatThereIs(t *testing.T) {
	all := exported(t)
	for file, d := range dashboards(t) {
		vars := map[string]bool{"__rate_interval": true}
		for _, v := range d.Templating.List {
			vars[v.Name] = true
			if v.Type != "query" {
				continue
			}
			m := values.FindStringSubmatch(v.Query)
			if m == nil {
				t.Errorf("%s: variable %s: %q is no label_values(METRIC, LABEL)", file, v.Name, v.Query)
				continue
			}
			problems, result := wrong(m[1], all)
			for _, p := range append(problems, notOf("label_values", m[2:], result)...) {
				t.Errorf("%s: variable %s: %s", file, v.Name, p)
			}
		}
		for _, panel := range d.Panels {
			if len(panel.Targets) == 0 {
				t.Errorf("%s: %q asks for nothing", file, panel.Title)
			}
			for _, target := range panel.Targets {
				for _, m := range variable.FindAllStringSubmatch(target.Expr, -1) {
					if !vars[m[1]] {
						t.Errorf("%s: %q: there is no variable %s", file, panel.Title, m[1])
					}
				}
				problems, result := wrong(strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"), all)
				for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					problems = append(problems, notOf("legend", m[1:], result)...)
				}
				for _, p := range problems {
					t.Errorf("%s: %q: %s", file, panel.Title, p)
				}
			}
		}
	}
}

// A panel's title is the question that it answers. Panels lie beside each other, within the 24 columns.
func TestPanelsAskAQuestion(t *testing.T) {
	for file, d := range dashboards(t) {
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if !strings.HasSuffix(p.Title, "?") || p.Description == "" {
				t.Errorf("%s: the title %q is no question, or has no description", file, p.Title)
			}
			if ids[p.ID] {
				t.Errorf("%s: %q: another panel has the id %d", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			if g := p.GridPos; g.X < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
				t.Errorf("%s: %q does not lie within the grid: %+v", file, p.Title, g)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other, taken := cells[[2]int{x, y}]; taken {
						t.Fatalf("%s: %q lies on %q", file, p.Title, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Links between dashboards, and what provisions them, name what there is.
func TestDashboardsAreProvisioned(t *testing.T) {
	const at = "deploy/grafana/provisioning/"
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	var boards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	for file, into := range map[string]any{at + "datasources/prometheus.yaml": &sources, at + "dashboards/invalidator.yaml": &boards} {
		if err := yaml.Unmarshal([]byte(read(t, file)), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL == "" {
		t.Errorf("datasources: %+v, want one Prometheus with its URL", sources.Datasources)
	}
	if len(boards.Providers) != 1 || boards.Providers[0].Type != "file" || boards.Providers[0].Options.Path == "" {
		t.Errorf("dashboards: %+v, want one folder", boards.Providers)
	}
	uids := map[string]string{}
	for file, d := range dashboards(t) {
		if other, taken := uids[d.UID]; taken || d.UID == "" || d.Title == "" {
			t.Errorf("%s: uid %q is that of %q, or it has none, or no title", file, d.UID, other)
		}
		uids[d.UID] = file
	}
	for file := range dashboards(t) {
		for _, m := range regexp.MustCompile(`"/d/([^"]+)"`).FindAllStringSubmatch(read(t, "deploy/grafana/dashboards/"+file), -1) {
			if uids[m[1]] == "" {
				t.Errorf("%s links to dashboard %q, which there is not", file, m[1])
			}
		}
	}
}
