package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestMain lets the test binary stand in for invalidator, where a script calls it.
func TestMain(m *testing.M) {
	if os.Getenv("INVALIDATOR_TEST_AS_COMMAND") != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// workflowSteps are the scripts of deploy/github/mappings.yml by their names.
func workflowSteps(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../../deploy/github/mappings.yml")
	if err != nil {
		t.Fatal(err)
	}
	var w struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	if err := yaml.Unmarshal(data, &w); err != nil {
		t.Fatal(err)
	}
	steps := map[string]string{}
	for _, s := range w.Jobs["mappings"].Steps {
		steps[s.Name] = s.Run
	}
	return steps
}

// The scripts of the workflow for pull requests, as GitHub runs them (bash, -e, pipefail), on a repository whose last commit is a merge.
func TestWorkflow(t *testing.T) {
	bin, repo := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "invalidator")); err != nil {
		t.Fatal(err)
	}
	summary := filepath.Join(t.TempDir(), "summary")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@x.test"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	commit := func(text string) {
		t.Helper()
		file(t, repo, "mappings.d/a.yaml", text)
		git("add", ".")
		git("commit", "-q", "-m", "x")
	}
	steps := workflowSteps(t)
	step := func(name string) (ok bool, out string) {
		t.Helper()
		cmd := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name])
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "INVALIDATOR_TEST_AS_COMMAND=1", "PATH="+bin+":"+os.Getenv("PATH"), "MAPPINGS=mappings.d", "GITHUB_STEP_SUMMARY="+summary)
		b, err := cmd.CombinedOutput()
		return err == nil, string(b)
	}
	want := func(name string, ok bool, part string) {
		t.Helper()
		if gotOK, out := step(name); gotOK != ok || !strings.Contains(out, part) {
			t.Errorf("%s: ok %v, want %v, %s, want %s", name, gotOK, ok, out, part)
		}
	}
	text := "version: 1\nteam: a\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: [\"user:{id}\"]\n"

	git("init", "-q")
	commit("")
	git("rm", "-q", "mappings.d/a.yaml")
	git("commit", "-q", "-m", "none")
	commit(text)
	want("Check", true, "")
	want("Diff", true, "+ user:{id}") // the first files: nothing to compare them with
	commit(strings.Replace(text, "{id}", "{uid}", 1) + "tests:\n  - {name: wrong, table: shop.users, after: {uid: 1}, keys: [\"user:2\"]}\n")
	want("Test", false, "::error file=mappings.d/a.yaml,line=9,col=5::test \"wrong\" failed")
	want("Diff", true, "key: user:{id} -> user:{uid}")
	commit("versoin: 1\n")
	want("Check", false, "::error file=mappings.d/a.yaml,line=1,col=1::")
	want("Diff", false, "mappings.d/a.yaml:1:1")

	said, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(said), "```"); n != 6 {
		t.Errorf("the summary of three runs has %d fences, want 6: %s", n, said)
	}
	git("update-ref", "-d", "HEAD")
	commit(text)
	want("Diff", false, "fetch-depth: 2")
}
