package main

import (
	"encoding/json"
	"fmt"

	"invalidator/mapping"
)

type mappingsCmd struct {
	Check mappingsCheckCmd `cmd:"" help:"Check the files of a folder."`
	Test  mappingsTestCmd  `cmd:"" help:"Check the files of a folder and run their tests."`
}

type mappingsFlags struct {
	Dir  string `arg:"" help:"The folder of mapping files." default:"mappings.d" type:"existingdir"`
	JSON bool   `help:"One JSON object a line and finding." name:"json"`
}

type mappingsCheckCmd struct{ mappingsFlags }

// Run prints every problem as file:line:col: what is wrong (hint), and fails on an error.
func (c mappingsCheckCmd) Run(e *env) error {
	set, failed, err := c.load(e)
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(e.stdout, "%d files, %d templates, fingerprint %s\n", len(set.Files()), len(set.Templates()), set.Fingerprint())
	}
	if failed {
		return errFailed
	}
	return nil
}

type mappingsTestCmd struct{ mappingsFlags }

// Run does what check does, and then every file's tests.
func (c mappingsTestCmd) Run(e *env) error {
	set, failed, err := c.load(e)
	if err != nil {
		return err
	}
	results := set.RunTests()
	passed := 0
	for _, r := range results {
		if r.OK() {
			passed++
		} else {
			failed = true
		}
		switch {
		case c.JSON:
			if err := json.NewEncoder(e.stdout).Encode(r); err != nil {
				return err
			}
		case !r.OK():
			fmt.Fprintln(e.stdout, r)
		}
	}
	if !c.JSON {
		fmt.Fprintf(e.stdout, "%d of %d tests passed\n", passed, len(results))
	}
	if failed {
		return errFailed
	}
	return nil
}

// load prints the problems and says whether one is an error.
func (c mappingsFlags) load(e *env) (*mapping.Set, bool, error) {
	set, problems, err := mapping.Load(c.Dir)
	if err != nil {
		return nil, false, err
	}
	failed := false
	for _, p := range problems {
		failed = failed || p.Severity == mapping.SeverityError
		if c.JSON {
			if err := json.NewEncoder(e.stdout).Encode(p); err != nil {
				return nil, false, err
			}
		} else {
			fmt.Fprintln(e.stdout, p)
		}
	}
	return set, failed, nil
}
