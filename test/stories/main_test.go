package stories

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// lockTag is the build tag with which the Kafka client's locks are such that in a bubble time goes on while somebody waits for one. Without it a member that commits while its group
// waits for another one stops the time in which that one would come.
const lockTag = "synctests"

// TestMain runs the tests. Where they were built without lockTag they are built again, with it.
func TestMain(m *testing.M) {
	tags, race := settings()
	if slices.Contains(tags, lockTag) {
		goleak.VerifyTestMain(m)
		return
	}
	code, err := again(append(tags, lockTag), race)
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the stories with the tag", lockTag+":", err)
	}
	os.Exit(code)
}

// settings are how the tests were built.
func settings() (tags []string, race bool) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags":
			tags = strings.Split(s.Value, ",")
		case "-race":
			race = s.Value == "true"
		}
	}
	return tags, race
}

// again builds the tests with other tags and runs them with the same arguments.
func again(tags []string, race bool) (code int, err error) {
	dir, err := os.MkdirTemp("", "stories")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "stories.test")
	build := exec.Command("go", "test", "-c", fmt.Sprintf("-race=%v", race), "-tags", strings.Join(tags, ","), "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("%w\n%s", err, out)
	}
	run := exec.Command(bin, os.Args[1:]...)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	err = run.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return max(failed.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
