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

// Process is a real memcached, or a proxy, of the test's own, on a free port of the loopback address. It ends with the test.
type Process struct {
	Addr string
	cmd  *exec.Cmd
}

// StartProcess starts the memcached that is installed, with further arguments (-c 20, -C, …).
func StartProcess(tb TB, args ...string) *Process {
	tb.Helper()
	addr := freeAddr(tb)
	args = append([]string{"-l", "127.0.0.1", "-p", fmt.Sprint(addr.Port), "-U", "0", "-m", "64"}, args...)
	if me, err := user.Current(); err == nil && me.Uid == "0" {
		args = append(args, "-u", "nobody") // memcached refuses to run as root
	}
	return startProcess(tb, addr, "memcached", args...)
}

// StartProxy starts the nutcracker that is installed, a proxy that speaks the classic protocol alone, before a node.
func StartProxy(tb TB, node string) *Process {
	tb.Helper()
	addr, stats := freeAddr(tb), freeAddr(tb)
	config := openFile(tb, "nutcracker.yml", fmt.Appendf(nil,
		"pool:\n  listen: %s\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 400\n  servers:\n   - %s:1\n", addr, node))
	return startProcess(tb, addr, "nutcracker", "-c", config, "-a", "127.0.0.1", "-s", fmt.Sprint(stats.Port))
}

func freeAddr(tb TB) *net.TCPAddr {
	tb.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("finding a free port: %v", err)
	}
	defer free.Close()
	return free.Addr().(*net.TCPAddr)
}

// startProcess returns when the program listens.
func startProcess(tb TB, addr *net.TCPAddr, program string, args ...string) *Process {
	tb.Helper()
	p := &Process{Addr: addr.String(), cmd: exec.Command(program, args...)}
	var complaint bytes.Buffer
	p.cmd.Stderr = &complaint
	if err := p.cmd.Start(); err != nil {
		tb.Fatalf("starting %s (Debian: apt-get install %[1]s): %v", program, err)
	}
	tb.Cleanup(p.Kill)
	for deadline := time.Now().Add(processStart); ; {
		conn, err := net.Dial("tcp", p.Addr)
		if err == nil {
			conn.Close()
			return p
		}
		if time.Now().After(deadline) {
			p.Kill() // its last words are complete then
			tb.Fatalf("%s %v does not listen: %v\n%s", program, args, err, &complaint)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Kill ends the process as a crash does, and returns when it is gone. A second time is nothing.
func (p *Process) Kill() {
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
