//go:build unix

package memcachetest

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"os/user"
	"syscall"
	"time"
)

// processStart is how long a memcached may take to listen.
const processStart = 5 * time.Second

// Process is a real memcached of the test's own, on a free port of the loopback address. It ends with the test.
type Process struct {
	Addr string
	cmd  *exec.Cmd
}

// StartProcess starts the memcached that is installed, with further arguments (-c 20, -C, …).
func StartProcess(tb TB, args ...string) *Process {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("finding a free port: %v", err)
	}
	addr := free.Addr().(*net.TCPAddr)
	free.Close()
	args = append([]string{"-l", "127.0.0.1", "-p", fmt.Sprint(addr.Port), "-U", "0", "-m", "64"}, args...)
	if me, err := user.Current(); err == nil && me.Uid == "0" {
		args = append(args, "-u", "nobody") // memcached refuses to run as root
	}
	p := &Process{Addr: addr.String(), cmd: exec.Command("memcached", args...)}
	var complaint bytes.Buffer
	p.cmd.Stderr = &complaint
	if err := p.cmd.Start(); err != nil {
		tb.Fatalf("starting memcached (Debian: apt-get install memcached): %v", err)
	}
	tb.Cleanup(p.stop)
	for deadline := time.Now().Add(processStart); ; {
		conn, err := net.Dial("tcp", p.Addr)
		if err == nil {
			conn.Close()
			return p
		}
		if time.Now().After(deadline) {
			p.stop() // its last words are complete then
			tb.Fatalf("memcached %v does not listen: %v\n%s", args, err, &complaint)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *Process) stop() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// Stall stops the process in its tracks, as a machine that swaps does: connections stay open and nothing is answered. It
// returns when every thread stands still.
func (p *Process) Stall() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping memcached: %w", err)
	}
	if _, err := syscall.Wait4(p.cmd.Process.Pid, nil, syscall.WUNTRACED, nil); err != nil {
		return fmt.Errorf("waiting for memcached to stop: %w", err)
	}
	return nil
}

// Resume lets a stalled process go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
