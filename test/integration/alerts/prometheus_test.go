//go:build integration

package alerts

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// Scrapes may take as long as they are apart: it takes -for of failed ones until a process that is only slow counts as down.
const scrapeEvery, evaluateEvery = 2 * time.Second, time.Second

var waitFor = flag.Duration("for", 4*time.Second, "how long a rule waits at most before it fires")

// prometheus is Debian's, with the rules of deploy/prometheus.
type prometheus struct {
	t    testing.TB
	addr string
}

// startPrometheus has it scrape these addresses, and ends it with the test.
func startPrometheus(t testing.TB, targets ...string) *prometheus {
	t.Helper()
	dir, p := t.TempDir(), &prometheus{t, harness.FreeAddr(t)}
	config := document(t, "prometheus.yml")
	config["global"] = map[string]string{"scrape_interval": scrapeEvery.String(), "scrape_timeout": scrapeEvery.String(), "evaluation_interval": evaluateEvery.String()}
	job := config["scrape_configs"].([]any)[0].(map[string]any)
	job["static_configs"] = []any{map[string]any{"targets": targets}}
	write(t, filepath.Join(dir, "prometheus.yml"), config)
	for _, pattern := range config["rule_files"].([]any) {
		files, err := filepath.Glob(filepath.Join(folder, pattern.(string)))
		if err != nil || len(files) == 0 {
			t.Fatalf("rule_files %s: no file (%v)", pattern, err)
		}
		for _, f := range files {
			name, err := filepath.Rel(folder, f)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), shortened(document(t, name)))
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.addr)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting prometheus: %v (./dev test installs it)", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		log.Close()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("prometheus:\n%s", said)
		}
	})
	return p
}

var folder = filepath.Join(services.Root(), "deploy/prometheus")

func document(t testing.TB, name string) (d map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = yaml.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

func write(t testing.TB, file string, d map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(d)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shortened is a file of rules of which none waits for longer than -for.
func shortened(file map[string]any) map[string]any {
	for _, g := range file["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			if rule := r.(map[string]any); rule["for"] != nil {
				rule["for"] = waitFor.String()
			}
		}
	}
	return file
}

// ask gives the labels of each series that an expression gives now.
func (p *prometheus) ask(expr string) (series []map[string]string, err error) {
	cl := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := cl.Get("http://" + p.addr + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	for _, r := range answer.Data.Result {
		series = append(series, r.Metric)
	}
	return series, nil
}

// await waits until an expression gives a series.
func (p *prometheus) await(what, expr string) {
	p.t.Helper()
	harness.Await(p.t, what, func() (bool, string) {
		got, err := p.ask(expr)
		return len(got) > 0, fmt.Sprintf("%s gives nothing (%v)", expr, err)
	})
}

// firing are the alerts that fire, by name, each with its severity.
func (p *prometheus) firing() (alerts, error) {
	return p.alerts(`ALERTS{alertstate="firing"}`)
}

// fired are those that fired since then.
func (p *prometheus) fired(since time.Time) (alerts, error) {
	return p.alerts(fmt.Sprintf(`max_over_time(ALERTS{alertstate="firing"}[%dms])`, time.Since(since).Milliseconds()))
}

type alerts map[string]string // severities by name

func (p *prometheus) alerts(expr string) (alerts, error) {
	got, err := p.ask(expr)
	out := alerts{}
	for _, a := range got {
		out[a["alertname"]] = a["severity"]
	}
	return out, err
}

// story harms the fleet and mends it: these alerts fire, and end, and no other fires meanwhile. While the fleet is harmed, each look at
// the alerts is preceded by meanwhile; nil: nothing happens then.
func (p *prometheus) story(harm func(), meanwhile func(), mend func(), want alerts) {
	p.t.Helper()
	began := time.Now()
	harm()
	harness.Await(p.t, "alerts to fire", func() (bool, string) {
		if meanwhile != nil {
			meanwhile()
		}
		got, err := p.firing()
		return err == nil && holds(got, want), fmt.Sprintf("%v fire, want %v (%v)", got, want, err)
	})
	mend()
	harness.Await(p.t, "alerts to end", func() (bool, string) {
		got, err := p.firing()
		return err == nil && len(got) == 0, fmt.Sprintf("%v fire (%v)", got, err)
	})
	fired, err := p.fired(began)
	if err != nil {
		p.t.Fatal(err)
	}
	if !maps.Equal(fired, want) {
		p.t.Errorf("these alerts fired: %v, want %v", fired, want)
	}
}

// holds says whether all of want are in got.
func holds(got, want alerts) bool {
	for name, severity := range want {
		if got[name] != severity {
			return false
		}
	}
	return true
}
