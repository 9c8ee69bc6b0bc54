package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"invalidator/internal/app"
	"invalidator/internal/config"
	"invalidator/mapping"
)

// mappingsFlags are those of check and test.
type mappingsFlags struct {
	Dir mappingsDir `arg:"" optional:"" help:"The folder of mapping files; mappings.d where none is named."`
	formatFlags
}

// mappingsDir is a folder as it was named, so that findings name files as the user does; empty where none was.
type mappingsDir string

// Validate refuses what is no folder before the command runs.
func (d mappingsDir) Validate() error {
	if d == "" {
		return nil
	}
	return isFolder(string(d))
}

func isFolder(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s", path)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder (name the folder that it is in: a file is checked beside the others)", path)
	}
	return nil
}

// or is the folder where none was named.
func (d mappingsDir) or(otherwise string) string { return cmp.Or(string(d), otherwise) }

type mappingsCheckCmd struct {
	mappingsFlags
	Config string `help:"Ask this configuration's databases and topics too: whether each table and column is there, of which type, and what the log says of it. Its mappings.dir is checked where no folder is named." type:"existingfile" short:"c"`
}

// Run prints every problem with its place, and fails on an error.
func (c mappingsCheckCmd) Run(e *env) error {
	var cfg *config.Config
	dir := defaultMappings
	if c.Config != "" {
		var err error
		if cfg, err = (configFlag{c.Config}).load(); err != nil {
			return err
		}
		dir = fromHere(cfg.Mappings.Dir)
	}
	set, problems, err := mapping.Load(c.Dir.or(dir))
	if err != nil {
		return err
	}
	problems = append(problems, set.Lint()...)
	var live app.TablesChecked
	if cfg != nil {
		live = app.CheckTables(e.ctx, cfg, set, e.log)
		problems = append(problems, live.Problems...)
		for _, f := range live.Findings {
			problems = append(problems, mapping.Problem{File: fromHere(c.Config), Severity: mapping.Severity(f.Severity), What: f.Where + ": " + f.What})
		}
	}
	slices.SortStableFunc(problems, func(a, b mapping.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	found := c.findings(e)
	if err := found.printAll(problems); err != nil {
		return err
	}
	if err := found.topics(live.Topics); err != nil {
		return err
	}
	if c.asText() {
		fmt.Fprintf(e.stdout, "%s%s, %s, fingerprint %s\n", found.summary(), count(len(set.Files()), "file"), count(len(set.Templates()), "template"), set.Fingerprint())
	}
	if found.errors > 0 {
		return errFailed
	}
	return nil
}

// fromHere is a path as seen from the working folder, where it lies in it: shorter to read.
func fromHere(path string) string {
	here, err := filepath.Abs(".")
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
