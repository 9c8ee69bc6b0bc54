package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var build struct {
	once sync.Once
	path string
	err  error
}

// Fast builds the binary without the race detector, for what is measured. Set it before the first Binary.
var Fast bool

// Binary builds cmd/invalidator once, with the race detector, and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		dir, err := os.MkdirTemp("", "invalidator-test")
		if err != nil {
			build.err = err
			return
		}
		build.path = filepath.Join(dir, "invalidator")
		out, err := exec.Command("go", "build", fmt.Sprintf("-race=%t", !Fast), "-o", build.path, "invalidator/cmd/invalidator").CombinedOutput()
		if err != nil {
			build.err = fmt.Errorf("building the binary: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// RemoveBinary is for TestMain's end.
func RemoveBinary() {
	if build.path != "" {
		os.RemoveAll(filepath.Dir(build.path))
	}
}

// Process is a running command of the binary.
type Process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	err  error
}

// Start runs the binary with these arguments. It is killed when the test ends; when the test has failed, the end of its log is shown.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartBinary(t, Binary(t), name, args...)
}

// StartBinary is Start, for another binary: of another version.
func StartBinary(t testing.TB, binary, name string, args ...string) *Process {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TZ=America/New_York") // no zone of the host's may come into a key
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	p := &Process{t: t, name: name, cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		p.check()
	})
	return p
}

// Alive says whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Terminate ends the process with SIGTERM; it must exit 0 within 10 s.
func (p *Process) Terminate() {
	p.t.Helper()
	began := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s did not end within %s of SIGTERM", p.name, Patience)
	}
	if p.err != nil {
		p.t.Errorf("%s after SIGTERM: %v", p.name, p.err)
	}
	if took := time.Since(began); took > 10*time.Second {
		p.t.Errorf("%s took %s to end after SIGTERM, want at most 10 s", p.name, took)
	}
}

// Leave asks the process to end, as SIGTERM does, and does not wait. Left waits until it has ended, with exit code 0.
func (p *Process) Leave() { p.cmd.Process.Signal(syscall.SIGTERM) }

// Left waits for what Leave asked for.
func (p *Process) Left() {
	p.t.Helper()
	if code := p.Wait(); code != 0 {
		p.t.Errorf("%s after SIGTERM: exit code %d", p.name, code)
	}
}

// Wait waits until the process ends by itself, and returns its exit code.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s did not end within %s", p.name, Patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Pause stops the process as SIGSTOP does; Continue lets it go on.
func (p *Process) Pause()    { p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *Process) Continue() { p.cmd.Process.Signal(syscall.SIGCONT) }

// Hangup sends SIGHUP.
func (p *Process) Hangup() { p.cmd.Process.Signal(syscall.SIGHUP) }

// Log is what the process has written so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// check fails the test on a data race, and shows the log's end where the test has failed.
func (p *Process) check() {
	log := p.Log()
	if at := strings.Index(log, "DATA RACE"); at >= 0 {
		p.t.Errorf("%s: the race detector found a race:\n%s", p.name, log[at:min(len(log), at+6000)])
	}
	if p.t.Failed() {
		p.t.Logf("%s, the end of its log:\n%s", p.name, tail(log, 4000))
	}
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}
