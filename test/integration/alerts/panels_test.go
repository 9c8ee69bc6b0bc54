//go:build integration

package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"invalidator/test/integration/services"
)

// answersPanels has Prometheus answer what the panels of deploy/grafana ask, as Grafana would ask it.
func (p *prometheus) answersPanels() {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(services.Root(), "deploy/grafana/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		p.t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range files {
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			p.t.Fatalf("%s: %v", file, err)
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				if _, err := p.ask(strings.NewReplacer("$__rate_interval", "1m", "$source", ".*", "$node", ".*").Replace(target.Expr)); err != nil {
					p.t.Errorf("%s: %q: %v", filepath.Base(file), panel.Title, err)
				}
			}
		}
	}
}
