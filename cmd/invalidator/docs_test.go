package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/alecthomas/kong"
)

// documents are the repository's Markdown files, by their paths from its root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		name, err := filepath.Rel("../..", path)
		all[name] = deployed(t, name)
		return err
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%d documents, %v", len(all), err)
	}
	return all
}

var (
	fences   = regexp.MustCompile("(?ms)^```.*?^```$")
	spans    = regexp.MustCompile("`[^`\n]*`")
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// Each link of a document that leads into this repository leads to a file that is there, and to one of its headings.
func TestLinksOfDocuments(t *testing.T) {
	all := documents(t)
	anchors := map[string]map[string]bool{}
	for name, text := range all {
		anchors[name] = map[string]bool{}
		for _, h := range headings.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			a := anchor(h[1])
			for n := 1; anchors[name][a]; n++ { // a heading that stands there twice
				a = fmt.Sprint(anchor(h[1]), "-", n)
			}
			anchors[name][a] = true
		}
	}
	n := 0
	for name, text := range all {
		text = spans.ReplaceAllString(fences.ReplaceAllString(text, ""), "")
		for _, l := range links.FindAllStringSubmatch(text, -1) {
			file, part, _ := strings.Cut(l[1], "#")
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			n++
			to := name
			if file != "" {
				to = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join("../..", to)); err != nil {
				t.Errorf("%s: %s leads nowhere", name, l[1])
			} else if part != "" && strings.HasSuffix(to, ".md") && !anchors[to][part] {
				t.Errorf("%s: %s has no heading #%s", name, to, part)
			}
		}
	}
	if n < 50 {
		t.Errorf("%d links were found", n)
	}
}

// Each command line of ours in a block of a document is one that the parser takes, and each of ./dev is one that it has.
func TestCommandLinesOfDocuments(t *testing.T) {
	ours, dev := 0, 0
	all, script := documents(t), deployed(t, "dev")
	t.Chdir("../..") // they name the sample's mappings.d
	for name, text := range all {
		for line := range strings.Lines(text) {
			line, block := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
			if !block {
				continue
			}
			line, _, _ = strings.Cut(line, "  #")
			for strings.Contains(line, "=") && regexp.MustCompile(`^[A-Z_]+=\S+ `).MatchString(line) {
				_, line, _ = strings.Cut(line, " ")
			}
			line = strings.TrimPrefix(line, "./")
			if command, ok := strings.CutPrefix(line, "dev "); ok {
				dev++
				if !strings.Contains(script, "\n  "+strings.Fields(command)[0]+" ") {
					t.Errorf("%s: ./dev has no %s", name, command)
				}
				continue
			}
			command, ok := strings.CutPrefix(line, "invalidator ")
			if !ok || strings.ContainsAny(command, "…<>|[]") || strings.Contains(command, " … ") {
				continue
			}
			words, err := exec.Command("bash", "-c", `printf '%s\0' `+strings.TrimSuffix(strings.TrimSpace(command), "&")).Output()
			if err != nil {
				continue // an answer of a process begins like a command
			}
			parser, err := kong.New(&cli{}, kong.Exit(func(int) {}))
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
			if strings.HasSuffix(args[0], ":") { // the same
				continue
			}
			ours++
			if _, err := parser.Parse(numbersBelowZero(args)); err != nil && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("%s: invalidator %s: %v", name, command, err)
			}
		}
	}
	if ours < 35 || dev < 4 {
		t.Errorf("%d of our command lines were found, and %d of ./dev", ours, dev)
	}
}
