package main

import (
	"fmt"
	"runtime"

	"invalidator/internal/obs"
)

type versionCmd struct{}

// Run prints the module's version, or the commit that it was built from.
func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintf(e.stdout, "invalidator %s, %s %s/%s\n", obs.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
