package harness

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Node is a memcached process of a test's own. Its methods speak the meta protocol over one connection, a command at a
// time, and are an independent check of what the pipeline did.
type Node struct {
	Addr string
	cmd  *exec.Cmd

	mu sync.Mutex
	c  net.Conn
	r  *bufio.Reader
}

// StartNodes starts n memcached processes and ends them with the test.
func StartNodes(t testing.TB, n int) []*Node {
	t.Helper()
	nodes := make([]*Node, n)
	for i := range nodes {
		nodes[i] = startNode(t)
	}
	return nodes
}

func startNode(t testing.TB) *Node {
	t.Helper()
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("memcached", "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", "32", "-u", "nobody")
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting memcached: %v", err)
	}
	node := &Node{Addr: addr, cmd: cmd}
	t.Cleanup(func() {
		if node.c != nil {
			node.c.Close()
		}
		cmd.Process.Kill()
		cmd.Wait()
	})
	Await(t, "memcached at "+addr, func() (bool, string) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false, err.Error()
		}
		node.c, node.r = c, bufio.NewReader(c)
		return true, ""
	})
	return node
}

// FreeAddr is an address of this machine where nobody listens now.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Hit is what mg answered.
type Hit struct {
	Found bool // there is a value
	Value string
	CAS   uint64
	Won   bool // a lease: this reader fills
}

// Get reads a key plainly.
func (n *Node) Get(key string) (Hit, error) { return n.get("mg " + key + " v c\r\n") }

// Lease reads a key, and on a miss takes or meets a lease of 30 s.
func (n *Node) Lease(key string) (Hit, error) { return n.get("mg " + key + " v c N30\r\n") }

func (n *Node) get(command string) (Hit, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line, err := n.say(command)
	if err != nil || line == "EN" {
		return Hit{}, err
	}
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != "VA" {
		return Hit{}, fmt.Errorf("%s answered %q", n.Addr, line)
	}
	size, err := strconv.Atoi(f[1])
	if err != nil {
		return Hit{}, fmt.Errorf("%s answered %q", n.Addr, line)
	}
	value := make([]byte, size+2)
	for read := 0; read < len(value); {
		m, err := n.r.Read(value[read:])
		if err != nil {
			return Hit{}, err
		}
		read += m
	}
	h := Hit{Value: string(value[:size])}
	placeholder := false
	for _, flag := range f[2:] {
		switch flag[0] {
		case 'c':
			h.CAS, err = strconv.ParseUint(flag[1:], 10, 64)
		case 'W':
			h.Won, placeholder = true, true
		case 'Z':
			placeholder = true
		}
	}
	h.Found = !placeholder && size > 0
	return h, err
}

// Set stores a value plainly.
func (n *Node) Set(key, value string) error {
	_, err := n.store(fmt.Sprintf("ms %s %d\r\n%s\r\n", key, len(value), value))
	return err
}

// Fill stores a value under a lease, and reports whether the lease still held.
func (n *Node) Fill(key, value string, cas uint64) (bool, error) {
	return n.store(fmt.Sprintf("ms %s %d C%d\r\n%s\r\n", key, len(value), cas, value))
}

func (n *Node) store(command string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line, err := n.say(command)
	if err != nil {
		return false, err
	}
	switch strings.Fields(line + " ")[0] {
	case "HD":
		return true, nil
	case "NS", "EX", "NF":
		return false, nil
	}
	return false, fmt.Errorf("%s answered %q", n.Addr, line)
}

// Delete removes a key, as a reader does with a fill that came too late.
func (n *Node) Delete(key string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.say("md " + key + "\r\n")
	return err
}

// SetAll stores one value under many keys.
func (n *Node) SetAll(keys []string, value string) error {
	return n.all(keys, func(k string) string { return fmt.Sprintf("ms %s %d q\r\n%s\r\n", k, len(value), value) }, nil)
}

// Present are those of the keys that have a value, or a lease.
func (n *Node) Present(keys []string) ([]string, error) {
	var out []string
	err := n.all(keys, func(k string) string { return "mg " + k + " k q\r\n" }, func(line string) bool {
		key, ok := strings.CutPrefix(line, "HD k")
		out = append(out, key)
		return ok
	})
	return out, err
}

// all sends a quiet command a key. What is answered goes to line, which says whether it was well-formed.
func (n *Node) all(keys []string, command func(string) string, line func(string) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for batch := range slices.Chunk(keys, 500) {
		var b strings.Builder
		for _, k := range batch {
			b.WriteString(command(k))
		}
		answer, err := n.say(b.String() + "mn\r\n")
		for ; err == nil && answer != "MN"; answer, err = n.line() {
			if line == nil || !line(answer) {
				return fmt.Errorf("%s answered %q", n.Addr, answer)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) say(command string) (string, error) {
	n.c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := n.c.Write([]byte(command)); err != nil {
		return "", err
	}
	return n.line()
}

func (n *Node) line() (string, error) {
	line, err := n.r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
