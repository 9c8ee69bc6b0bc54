//go:build integration

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var units = []string{"invalidator-feeder.service", "invalidator-worker.service"}

// systemd takes each unit without a word, in a root that has what a machine has.
func TestSystemdVerifiesTheUnits(t *testing.T) {
	machine := t.TempDir()
	put := func(path, text string, mode os.FileMode) {
		t.Helper()
		path = filepath.Join(machine, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put("usr/local/bin/invalidator", "#!/bin/sh\n", 0o755)
	put("bin/kill", "#!/bin/sh\n", 0o755)
	for _, target := range []string{"sysinit", "basic", "shutdown", "multi-user", "network-online"} {
		put("usr/lib/systemd/system/"+target+".target", "[Unit]\nDescription="+target+"\n", 0o644)
	}
	for _, u := range units {
		put("etc/systemd/system/"+u, read(t, "deploy/systemd", u), 0o644)
	}
	if out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no", "--root=" + machine}, units...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// systemd-analyze scores how exposed a service is, from 0 (not at all) to 10. Without any of our settings it is 9.2.
func TestUnitsAreHardened(t *testing.T) {
	for _, u := range units {
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=12", filepath.Join(root, "deploy/systemd", u)).CombinedOutput()
		if err != nil {
			t.Errorf("%s is exposed by more than 1.2: %v\n%s", u, err, out)
		}
	}
}
