package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"invalidator/internal/changelog"
)

// An operator pauses a pool, finds it paused in status, and resumes it.
func TestPauseCommands(t *testing.T) {
	b := newGapBench(t)
	state, err := changelog.OpenState(b.kafka, b.names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	text := "version: 1\nteam: t\npools: [user]\nmappings:\n  - {name: m, table: a.b, keys: ['user:{id}']}\n"
	if err := state.PutMapping(t.Context(), "invalidator", changelog.MappingFile{Name: "t.yaml", Team: "t", Text: text, Since: time.Now()}, changelog.SavedMapping{}); err != nil {
		t.Fatal(err)
	}
	invoke := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	want := func(code int, stdout, stderr string, args ...string) string {
		t.Helper()
		c, out, errs := invoke(args...)
		if c != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
			t.Errorf("%s: exit %d, want %d with %q and %q\n%s%s", strings.Join(args, " "), c, code, stdout, stderr, out, errs)
		}
		return out
	}
	want(2, "", `did you mean "user"?`, "pause", "pool", "usr", "--config", b.config)
	want(2, "", "is not paused (no pool is)", "resume", "pool", "user", "--config", b.config)
	want(0, "pool user is paused: ", "", "pause", "pool", "user", "--by", "ann@host", "--reason", "a bad template", "--config", b.config)
	want(0, "paused already, by ann@host since ", "", "pause", "pool", "user", "--config", b.config)
	want(1, "paused: pool user, by ann@host since ", "", "status", "--config", b.config)
	_, out, _ := invoke("status", "--json", "--config", b.config)
	var p pauseJSON
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &p); err != nil || p.Pool != "user" || !p.Paused || p.By != "ann@host" || p.Reason != "a bad template" || p.At.IsZero() {
		t.Errorf("%v: %s", err, out)
	}
	out = want(0, `"paused":false`, "", "resume", "pool", "user", "--json", "--config", b.config)
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.Pool != "user" || p.Paused {
		t.Errorf("%v: %s", err, out)
	}
	if _, out, _ := invoke("status", "--config", b.config); strings.Contains(out, "paused: pool") {
		t.Errorf("still shown: %s", out)
	}
}
