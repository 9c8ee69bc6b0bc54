package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Node is a memcached process of a test's own, and a connection to it.
type Node struct {
	*Conn
	Addr string

	t      testing.TB
	args   []string
	cmd    *exec.Cmd
	ended  chan struct{} // closed once the process is gone
	lives  atomic.Int64
	warmed time.Time // when it was stopped with its memory kept
}

// StartNodes starts n memcached processes and ends them with the test. args come after ours, and win; by default each has 32 MB.
func StartNodes(t testing.TB, n int, args ...string) []*Node {
	t.Helper()
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = startNode(t, append([]string{"-m", "32"}, args...)...)
	}
	return nodes
}

// StartKeepingNodes is StartNodes, for nodes that StopWarm can stop.
func StartKeepingNodes(t testing.TB, n int) []*Node {
	t.Helper()
	const shm = "/dev/shm" // memory kept in a file is only as fast as the file
	dir, err := os.MkdirTemp(shm, "memcached-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { // memcached gives root's rights away before it opens the file
		t.Fatal(err)
	}
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = startNode(t, "-t", "1", "-m", "40", "-e", filepath.Join(dir, fmt.Sprint(i))) // 39 is the least with -e
	}
	return nodes
}

func startNode(t testing.TB, args ...string) *Node {
	t.Helper()
	n := &Node{Addr: FreeAddr(t), t: t}
	n.Conn = &Conn{addr: n.Addr, patience: 10 * time.Second}
	_, port, _ := net.SplitHostPort(n.Addr)
	n.args = append([]string{"-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "nobody"}, args...)
	n.Start()
	t.Cleanup(n.Kill)
	return n
}

// Start starts it again, and waits until it answers. After StopWarm it has its memory, else none.
func (n *Node) Start() {
	n.t.Helper()
	if !n.warmed.IsZero() {
		// It compares the whole seconds of its clocks, and begins without its memory where it would come back before it went.
		const apart = 2100 * time.Millisecond
		<-time.After(time.Until(n.warmed.Add(apart)))
		n.warmed = time.Time{}
	}
	n.cmd = exec.Command("memcached", n.args...)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatalf("starting memcached: %v", err)
	}
	n.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(n.cmd, n.ended)
	Await(n.t, "memcached at "+n.Addr, func() (bool, string) {
		c, err := net.Dial("tcp", n.Addr)
		if err != nil {
			return false, err.Error()
		}
		c.Close()
		return true, ""
	})
}

// Kill ends it with SIGKILL: its memory is gone.
func (n *Node) Kill() {
	n.lives.Add(1)
	n.cmd.Process.Kill()
	<-n.ended
	n.Close()
}

// StopWarm ends it and keeps its memory for the next Start. Only nodes of StartKeepingNodes do.
func (n *Node) StopWarm() {
	n.lives.Add(1)
	n.cmd.Process.Signal(syscall.SIGUSR1)
	<-n.ended
	n.Close()
	n.warmed = time.Now()
}

// Freeze makes it answer nothing, while its connections stand; Thaw lets it go on.
func (n *Node) Freeze() { n.cmd.Process.Signal(syscall.SIGSTOP) }
func (n *Node) Thaw()   { n.cmd.Process.Signal(syscall.SIGCONT) }

// Life is another number whenever the process is another. Who has a lease of another life has none: CAS numbers may begin anew.
func (n *Node) Life() int64 { return n.lives.Load() }
