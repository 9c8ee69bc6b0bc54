package main

import (
	"fmt"
	"io"
	"strings"

	"invalidator/mapping"
)

type mappingsTestCmd struct {
	mappingsFlags
	Coverage bool `help:"Name the templates and conditions that no test reaches."`
}

// testLine is a line of --json of a test that ran. Its form is stable.
type testLine struct {
	Test       string   `json:"test"`
	File       string   `json:"file"`
	Line       int      `json:"line"`
	Col        int      `json:"col"`
	OK         bool     `json:"ok"`
	Missing    []string `json:"missing"`
	Unexpected []string `json:"unexpected"`
	Skipped    []string `json:"skipped"`
}

// coverageLine is a line of --json of a template, with --coverage. Its form is stable.
type coverageLine struct {
	Template string   `json:"template"`
	Mapping  string   `json:"mapping"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Col      int      `json:"col"`
	Covered  bool     `json:"covered"`
	Lacks    []string `json:"lacks"`
}

// Run does what check does without a database, and then runs every file's tests.
func (c mappingsTestCmd) Run(e *env) error {
	set, problems, err := mapping.Load(c.Dir.or(defaultMappings))
	if err != nil {
		return err
	}
	found := c.findings(e)
	if err := found.printAll(problems); err != nil {
		return err
	}
	tests, passed := 0, 0
	templates, covered := 0, 0
	for _, f := range set.Files() {
		results := f.RunTests()
		for _, r := range results {
			tests++
			if r.OK() {
				passed++
			}
			if err := c.result(found, r); err != nil {
				return err
			}
		}
		if !c.Coverage {
			continue
		}
		for _, cov := range f.Coverage(results) {
			templates++
			if cov.Complete() {
				covered++
			}
			if err := c.coverage(found, cov); err != nil {
				return err
			}
		}
	}
	if c.asText() {
		fmt.Fprintf(e.stdout, "%d of %d tests passed\n", passed, tests)
		if c.Coverage {
			fmt.Fprintf(e.stdout, "%d of %d templates are covered\n", covered, templates)
		}
	}
	if found.errors > 0 {
		return errFailed
	}
	return nil
}

// result shows a test. For people and pull requests one that passed is not worth a line.
func (c mappingsTestCmd) result(p *findings, r mapping.TestResult) error {
	if c.asJSON() {
		if !r.OK() {
			p.errors++
		}
		return writeJSON(p.out, testLine{
			Test: r.Test.Name, File: r.Test.File, Line: r.Test.Line, Col: r.Test.Col, OK: r.OK(),
			Missing: orEmpty(r.Missing), Unexpected: orEmpty(r.Unexpected), Skipped: orEmpty(skips(r)),
		})
	}
	if r.OK() {
		return nil
	}
	x := mapping.Problem{File: r.Test.File, Line: r.Test.Line, Col: r.Test.Col, Severity: mapping.SeverityError,
		What: fmt.Sprintf("test %q failed", r.Test.Name)}
	if !c.asText() {
		x.What += "\n" + strings.Join(diffLines(r), "\n")
		return p.print(x)
	}
	if err := p.print(x); err != nil {
		return err
	}
	for _, line := range diffLines(r) {
		switch line[0] {
		case '-':
			line = p.ui.Bad(line)
		case '+':
			line = p.ui.Good(line)
		}
		if _, err := io.WriteString(p.out, "    "+line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// diffLines are the keys that the test names, marked as in a diff: - is missing, + was not expected.
func diffLines(r mapping.TestResult) (lines []string) {
	missing := map[string]bool{}
	for _, k := range r.Missing {
		missing[k] = true
	}
	for _, k := range r.Test.Keys {
		k = mapping.ShowKey(k)
		mark := "  "
		if missing[k] {
			mark = "- "
			delete(missing, k)
		}
		lines = append(lines, mark+k)
	}
	for _, k := range r.Missing { // of keys in shadow
		if missing[k] {
			lines = append(lines, "- "+k)
		}
	}
	for _, k := range r.Unexpected {
		lines = append(lines, "+ "+k)
	}
	for _, s := range skips(r) {
		lines = append(lines, "  skipped "+s)
	}
	return lines
}

// skips are the templates that gave no key, and why.
func skips(r mapping.TestResult) (lines []string) {
	for _, s := range r.Skipped {
		lines = append(lines, s.String())
	}
	for _, t := range r.Unmet {
		lines = append(lines, t.Text+": its condition is false: "+t.When)
	}
	for _, u := range r.Undecided {
		lines = append(lines, u.String()+", so that it counts as true")
	}
	return lines
}

func (c mappingsTestCmd) coverage(p *findings, cov mapping.Coverage) error {
	t := cov.Template
	var lacks []string
	if !cov.Rendered {
		lacks = append(lacks, "no test has a key of "+t.Text)
	}
	if !cov.Met && cov.Rendered {
		lacks = append(lacks, "no test decides that its condition is true: "+t.When)
	}
	if !cov.Unmet {
		lacks = append(lacks, "no test has its condition false: "+t.When)
	}
	if c.asJSON() {
		return writeJSON(p.out, coverageLine{
			Template: t.Text, Mapping: t.Mapping, File: t.File, Line: t.Line, Col: t.Col, Covered: cov.Complete(), Lacks: orEmpty(lacks),
		})
	}
	for _, what := range lacks {
		if err := p.print(mapping.Problem{File: t.File, Line: t.Line, Col: t.Col, Severity: mapping.SeverityNote, What: what}); err != nil {
			return err
		}
	}
	return nil
}

// orEmpty makes a list that JSON shows as one.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
