package main

import (
	"fmt"
	"runtime"

	"invalidator/internal/obs"
)

type versionCmd struct {
	JSON bool `help:"One JSON object: version, commit, go, platform." name:"json"`
}

// build is what a binary knows of its making.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // empty: built without one
	Go       string `json:"go"`
	Platform string `json:"platform"` // linux/amd64
}

// Run prints what the binary was built from, with what and for what.
func (c versionCmd) Run(e *env) error {
	b := build{obs.Version(), obs.Commit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if c.JSON {
		return writeJSON(e.stdout, b)
	}
	of := ""
	if b.Commit != "" && b.Commit != b.Version {
		of = " (" + b.Commit + ")"
	}
	_, err := fmt.Fprintf(e.stdout, "invalidator %s%s, %s %s\n", b.Version, of, b.Go, b.Platform)
	return err
}
