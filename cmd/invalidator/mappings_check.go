package main

import (
	"fmt"

	"invalidator/mapping"
)

// mappingsFlags are those of check and test.
type mappingsFlags struct {
	Dir string `arg:"" optional:"" help:"The folder of mapping files; mappings.d where none is named." type:"existingdir"`
	formatFlags
}

func (c mappingsFlags) dir() string {
	if c.Dir == "" {
		return defaultMappings
	}
	return c.Dir
}

type mappingsCheckCmd struct {
	mappingsFlags
}

// Run prints every problem with its place, and fails on an error.
func (c mappingsCheckCmd) Run(e *env) error {
	set, problems, err := mapping.Load(c.dir())
	if err != nil {
		return err
	}
	found := c.findings(e)
	if err := found.printAll(append(problems, set.Lint()...)); err != nil {
		return err
	}
	if c.asText() {
		fmt.Fprintf(e.stdout, "%s%d files, %d templates, fingerprint %s\n", found.summary(), len(set.Files()), len(set.Templates()), set.Fingerprint())
	}
	if found.errors > 0 {
		return errFailed
	}
	return nil
}
