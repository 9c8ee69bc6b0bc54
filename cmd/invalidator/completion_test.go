package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A shell sets COMP_LINE to the line so far, and is told what may come next.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"invalidator dead":                  "deadletter",
		"invalidator mappings ":             "check diff schema test",
		"invalidator flush pool user --dry": "--dry-run",
		"invalidator nothing-of-that-kind-": "",
	} {
		t.Setenv("COMP_LINE", line)
		code, stdout, stderr := invalidator(t, "", "invalidator", "x", "y") // what bash passes besides counts for nothing
		if got := strings.Join(slices.Sorted(strings.FieldsSeq(stdout)), " "); code != exitOK || got != want || stderr != "" {
			t.Errorf("%q: exit %d, %q, want %q; stderr %q", line, code, got, want, stderr)
		}
	}
}

// Bash takes what is printed for it, and has a completion of ours then.
func TestCompletionOfBash(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "invalidator")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--noprofile", "--norc", "-ec", `source <(invalidator completion bash); complete -p invalidator >/dev/null; COMP_LINE="invalidator dead" invalidator`)
	cmd.Env = append(os.Environ(), "INVALIDATOR_TEST_AS_COMMAND=1", "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if want := "deadletter\n"; err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
	if code, _, _ := invalidator(t, "", "completion", "csh"); code != exitMisuse {
		t.Errorf("a shell that we do not know: exit %d", code)
	}
}
