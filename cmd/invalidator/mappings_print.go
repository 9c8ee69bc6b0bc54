package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"invalidator/internal/app"
	"invalidator/internal/ui"
	"invalidator/mapping"
)

// formatFlags choose how findings are shown.
type formatFlags struct {
	JSON   bool   `help:"One JSON object a line and finding; the same as --format json." name:"json"`
	Format string `help:"text for people, json, or github for annotations on a pull request." enum:"text,json,github" default:"text"`
}

func (f formatFlags) asJSON() bool { return f.JSON || f.Format == "json" }
func (f formatFlags) asText() bool { return !f.asJSON() && f.Format == "text" }

// findings prints problems as they come and counts them. It is for one goroutine.
type findings struct {
	format           formatFlags
	out              io.Writer
	ui               *ui.Printer
	lines            map[string][]string // file -> its lines
	errors, warnings int
}

func (f formatFlags) findings(e *env) *findings {
	return &findings{format: f, out: e.stdout, ui: ui.New(e.stdout), lines: map[string][]string{}}
}

// print shows one problem.
func (p *findings) print(x mapping.Problem) error {
	switch x.Severity {
	case mapping.SeverityError:
		p.errors++
	case mapping.SeverityWarning:
		p.warnings++
	}
	var err error
	switch {
	case p.format.asJSON():
		err = writeJSON(p.out, x)
	case p.format.Format == "github":
		_, err = io.WriteString(p.out, annotation(x))
	default:
		_, err = io.WriteString(p.out, p.people(x))
	}
	return err
}

func (p *findings) printAll(problems []mapping.Problem) error {
	for _, x := range problems {
		if err := p.print(x); err != nil {
			return err
		}
	}
	return nil
}

// topics shows what the topics hold that somebody else feeds. On a pull request it would be no annotation of a line.
func (p *findings) topics(list []app.SeenTopic) error {
	var b strings.Builder
	wide := 0
	for _, t := range list {
		wide = max(wide, len(t.Topic))
	}
	for i, t := range list {
		switch {
		case p.format.asJSON():
			if err := writeJSON(p.out, t); err != nil {
				return err
			}
			continue
		case !p.format.asText():
			return nil
		}
		if i == 0 || list[i-1].Source != t.Source {
			fmt.Fprintf(&b, "topics of source %s:\n", t.Source)
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", wide, t.Topic, t.Shows())
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// summary is the last line for people; without anything found it is empty.
func (p *findings) summary() string {
	if p.errors+p.warnings == 0 {
		return ""
	}
	return fmt.Sprintf("errors: %d, warnings: %d\n", p.errors, p.warnings)
}

// people shows where, what, the line itself with a caret under the place, and the hint.
func (p *findings) people(x mapping.Problem) string {
	var b strings.Builder
	where, word := x.File, p.ui.Bad(string(x.Severity))
	if x.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", x.File, x.Line, x.Col)
	}
	switch x.Severity {
	case mapping.SeverityWarning:
		word = p.ui.Bold(string(x.Severity))
	case mapping.SeverityNote:
		word = p.ui.Faint(string(x.Severity))
	}
	fmt.Fprintf(&b, "%s: %s: %s\n", p.ui.Bold(where), word, x.What)
	if line, ok := p.line(x.File, x.Line); ok {
		line, col := window(line, x.Col)
		fmt.Fprintf(&b, "%s\n%s\n", p.ui.Faint(fmt.Sprintf("%5d | ", x.Line))+line, p.ui.Faint("      | ")+below(line, col)+p.ui.Bad("^"))
	}
	if x.Hint != "" {
		fmt.Fprintf(&b, "%s%s\n", p.ui.Faint("      = "), x.Hint)
	}
	return b.String()
}

// line is a line of a file, without what a terminal would obey; false where there is none.
func (p *findings) line(file string, n int) (string, bool) {
	lines, ok := p.lines[file]
	if !ok {
		if data, err := os.ReadFile(file); err == nil { // a file that cannot be read is a problem of its own
			lines = strings.Split(string(data), "\n")
		}
		p.lines[file] = lines
	}
	if n < 1 || n > len(lines) {
		return "", false
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\t' {
			return '\uFFFD'
		}
		return c
	}, strings.ToValidUTF8(strings.TrimSuffix(lines[n-1], "\r"), "\uFFFD")), true
}

// What is shown of a long line, in characters before and from the caret.
const (
	shownBefore = 80
	shownAfter  = 60
)

// window cuts a long line to what stands around column col, and returns the column there.
func window(line string, col int) (string, int) {
	all := []rune(line)
	from, to := 0, len(all)
	if col-1 > shownBefore+1 {
		from = min(col-1, len(all)) - shownBefore
	}
	if to-max(col-1, from) > shownAfter+1 {
		to = max(col-1, from) + shownAfter
	}
	before, after := "", ""
	if from > 0 {
		before, col = "…", col-from+1
	}
	if to < len(all) {
		after = "…"
	}
	return before + string(all[from:to]) + after, col
}

// below is what brings the caret under column col of line: tabs stay tabs, so that both lines stand alike, and what takes two
// columns of a terminal, or none, is answered by as many.
func below(line string, col int) string {
	var b strings.Builder
	for _, c := range line {
		if col--; col < 1 {
			break
		}
		switch kind := width.LookupRune(c).Kind(); {
		case c == '\t':
			b.WriteByte('\t')
		case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf):
		case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
			b.WriteString("  ")
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// count writes 1 file, 2 files.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// annotation is a problem as a workflow command: GitHub shows it beside the line in the pull request.
func annotation(x mapping.Problem) string {
	kind := map[mapping.Severity]string{mapping.SeverityError: "error", mapping.SeverityWarning: "warning"}[x.Severity]
	if kind == "" {
		kind = "notice"
	}
	what := x.What
	if x.Hint != "" {
		what += " (" + x.Hint + ")"
	}
	at := "file=" + property.Replace(inRepository(x.File))
	if x.Line > 0 {
		at += fmt.Sprintf(",line=%d,col=%d", x.Line, x.Col)
	}
	return fmt.Sprintf("::%s %s::%s\n", kind, at, message.Replace(what))
}

// What a workflow command's message and its properties cannot hold as it stands.
var (
	message  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// inRepository is a path from the top of the repository, as annotations need it.
func inRepository(file string) string {
	root := os.Getenv("GITHUB_WORKSPACE")
	if abs, err := filepath.Abs(file); err == nil && root != "" {
		if rel, err := filepath.Rel(root, abs); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
	}
	return filepath.ToSlash(file)
}

// writeJSON writes one line, in which keys stand as they are.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
