package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// Each command line of deploy/ and docker-compose.yml is one that the parser takes, and each variable that they set for us is a flag's.
func TestCommandLinesOfDeploy(t *testing.T) {
	lines := map[string][]string{}
	var variables []string
	for _, role := range []string{"feeder", "worker"} {
		path := "deploy/systemd/invalidator-" + role + ".service"
		unit := deployed(t, path)
		lines[path] = strings.Fields(regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/invalidator (.*)$`).FindStringSubmatch(unit)[1])
		variables = append(variables, regexp.MustCompile(`INVALIDATOR_\w+`).FindAllString(unit, -1)...)

		path = "deploy/kubernetes/base/" + role + ".yaml"
		var d struct {
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(deployed(t, path)), &d); err != nil {
			t.Fatal(err)
		}
		lines[path] = d.Spec.Template.Spec.Containers[0].Args
	}
	var compose struct {
		Services map[string]struct {
			Image   string
			Command []string
		}
	}
	if err := yaml.Unmarshal([]byte(deployed(t, "docker-compose.yml")), &compose); err != nil {
		t.Fatal(err)
	}
	for name, s := range compose.Services {
		if s.Image == "invalidator:dev" {
			lines["docker-compose.yml, "+name] = s.Command
		}
	}
	for comment := range strings.Lines(deployed(t, "deploy/Dockerfile")) {
		if _, args, ok := strings.Cut(comment, " invalidator run "); ok {
			lines["deploy/Dockerfile"] = append([]string{"run"}, strings.Fields(args)...)
		}
	}
	if len(lines) != 9 || len(variables) != 2 {
		t.Errorf("%d command lines and %d variables, want 9 and 2: %q %q", len(lines), len(variables), lines, variables)
	}

	for where, args := range lines {
		parser, err := kong.New(&cli{})
		if err != nil {
			t.Fatal(err)
		}
		at, err := parser.Parse(args)
		if err != nil {
			t.Errorf("%s: %q: %v", where, args, err)
			continue
		}
		if want := map[bool]string{true: "feed", false: "run"}[strings.Contains(where, "feeder")]; at.Command() != want {
			t.Errorf("%s runs %s, want %s", where, at.Command(), want)
		}
		for _, v := range variables {
			if !slices.ContainsFunc(at.Flags(), func(f *kong.Flag) bool { return slices.Contains(f.Envs, v) }) {
				t.Errorf("%s is no variable of %s", v, at.Command())
			}
		}
	}
}

func deployed(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
