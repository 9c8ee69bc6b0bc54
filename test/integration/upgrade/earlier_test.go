//go:build integration

package upgrade

import (
	"os/exec"
	"path/filepath"
	"testing"

	"invalidator/test/integration/services"
)

// earlier is the commit whose binary runs beside today's. It goes forward only with a note in docs/OPERATIONS.md that one must not upgrade
// over it at once.
const earlier = "27f508667bf5963d6d62d037c2b2672886c34d7f"

// earlierBinary builds that commit's, with the race detector as today's is, from a copy of its files: the clone stays as it is.
func earlierBinary(t *testing.T) string {
	t.Helper()
	root, dir := services.Root(), t.TempDir()
	if err := in(root, "git", "cat-file", "-e", earlier+"^{commit}").Run(); err != nil { // a clone without the whole history
		if out, err := in(root, "git", "fetch", "--quiet", "--depth=1", "origin", earlier).CombinedOutput(); err != nil {
			t.Fatalf("this clone does not have the commit %s, and cannot fetch it: %v\n%s(make it whole: git fetch --unshallow)", earlier, err, out)
		}
	}
	tar := filepath.Join(dir, "files.tar")
	for _, cmd := range []*exec.Cmd{
		in(root, "git", "archive", "--format=tar", "--output="+tar, earlier),
		in(dir, "tar", "-xf", tar),
		in(dir, "go", "build", "-race", "-o", "invalidator.bin", "./cmd/invalidator"),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return filepath.Join(dir, "invalidator.bin")
}

func in(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return cmd
}
