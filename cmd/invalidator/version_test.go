package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"invalidator/internal/obs"
)

// The version is for people in a line, and for programs in an object whose form is stable.
func TestVersion(t *testing.T) {
	want := build{obs.Version(), obs.Commit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	code, stdout, _ := invalidator(t, "", "version", "--json")
	var got build
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil || code != exitOK || got != want {
		t.Errorf("exit %d, %v: %+v, want %+v", code, err, got, want)
	}
	code, stdout, _ = invalidator(t, "", "version")
	if code != exitOK || !strings.HasPrefix(stdout, "invalidator "+want.Version) || !strings.HasSuffix(stdout, ", "+want.Go+" "+want.Platform+"\n") {
		t.Errorf("exit %d: %q", code, stdout)
	}
}
