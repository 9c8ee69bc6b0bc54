package main

import (
	"encoding/json"
	"fmt"

	"invalidator/cdc"
	"invalidator/internal/app"
)

type checkCmd struct {
	configFlag
	JSON bool `help:"One JSON object a line and finding." name:"json"`
}

// Run prints a line a finding and fails if one is an error.
func (c checkCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	errors, warnings := 0, 0
	for _, f := range app.Check(e.ctx, cfg, e.log) {
		switch f.Severity {
		case string(cdc.SeverityError):
			errors++
		case string(cdc.SeverityWarning):
			warnings++
		}
		if c.JSON {
			if err := json.NewEncoder(e.stdout).Encode(f); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(e.stdout, f)
	}
	if !c.JSON {
		fmt.Fprintf(e.stdout, "errors: %d, warnings: %d\n", errors, warnings)
	}
	if errors > 0 {
		return errFailed
	}
	return nil
}
