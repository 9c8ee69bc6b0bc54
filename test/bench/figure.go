//go:build bench

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Figure is one measured number. As JSON it is a line of ./dev bench --json.
type Figure struct {
	Name  string  `json:"figure"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // x (a ratio), rows/s, deletes/s, records/s, ms, s, MB, %
	Goal  string  `json:"goal,omitempty"`
	Met   *bool   `json:"met,omitempty"` // left out where there is no goal
}

// atLeast and atMost are a figure with a goal; plain is one without.
func atLeast(name string, value float64, unit string, goal float64) Figure {
	met := value >= goal
	return Figure{name, value, unit, fmt.Sprintf(">= %v", goal), &met}
}

func atMost(name string, value float64, unit string, goal float64) Figure {
	met := value <= goal
	return Figure{name, value, unit, fmt.Sprintf("<= %v", goal), &met}
}

func plain(name string, value float64, unit string) Figure {
	return Figure{Name: name, Value: value, Unit: unit}
}

func (f Figure) String() string {
	s := fmt.Sprintf("%-30s %12.2f %-9s", f.Name, f.Value, f.Unit)
	if f.Met == nil {
		return s
	}
	if *f.Met {
		return s + "met    (" + f.Goal + ")"
	}
	return s + "MISSED (" + f.Goal + ")"
}

// report appends a figure to the file that BENCH_FIGURES names, as JSON where BENCH_JSON is set. ./dev shows the file.
func report(t *testing.T, f Figure) {
	t.Helper()
	t.Log(f)
	path := os.Getenv("BENCH_FIGURES")
	if path == "" {
		return
	}
	line := f.String()
	if os.Getenv("BENCH_JSON") != "" {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // ">= 3", for people too
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSpace(b.String())
	}
	out, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(out, line)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}
