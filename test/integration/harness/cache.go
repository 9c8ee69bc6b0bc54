package harness

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Conn is one connection to a memcached, made when it is first needed and again after an error. It speaks the meta protocol, a command at
// a time, and is an independent check of what the pipeline did.
type Conn struct {
	addr     string
	patience time.Duration // for one answer

	mu sync.Mutex
	c  net.Conn
	r  *bufio.Reader
}

// Dial makes a Conn that waits long for its answers, so that whoever fills a copy knows how that ended. It connects at once.
func Dial(addr string) (*Conn, error) {
	c := &Conn{addr: addr, patience: Patience}
	return c, c.connect()
}

func (n *Conn) connect() error {
	c, err := net.DialTimeout("tcp", n.addr, 5*time.Second)
	if err != nil {
		return err
	}
	n.c, n.r = c, bufio.NewReader(c)
	return nil
}

// Close lets go of the connection.
func (n *Conn) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hangUp()
}

func (n *Conn) hangUp() {
	if n.c != nil {
		n.c.Close()
		n.c = nil
	}
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
func (n *Conn) Get(key string) (Hit, error) { return n.get("mg " + key + " v c\r\n") }

// Lease reads a key, and on a miss takes or meets a lease of 30 s.
func (n *Conn) Lease(key string) (Hit, error) { return n.LeaseFor(key, 30*time.Second) }

// LeaseFor is Lease for another time, in whole seconds.
func (n *Conn) LeaseFor(key string, d time.Duration) (Hit, error) {
	return n.get(fmt.Sprintf("mg %s v c N%d\r\n", key, d/time.Second))
}

func (n *Conn) get(command string) (Hit, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line, err := n.say(command)
	if err != nil || line == "EN" {
		return Hit{}, err
	}
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != "VA" {
		return Hit{}, fmt.Errorf("%s answered %q", n.addr, line)
	}
	size, err := strconv.Atoi(f[1])
	if err != nil {
		return Hit{}, fmt.Errorf("%s answered %q", n.addr, line)
	}
	value := make([]byte, size+2)
	for read := 0; read < len(value); {
		m, err := n.r.Read(value[read:])
		if err != nil {
			n.hangUp()
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
func (n *Conn) Set(key, value string) error {
	_, err := n.store(fmt.Sprintf("ms %s %d\r\n%s\r\n", key, len(value), value))
	return err
}

// Fill stores a value under a lease, and reports whether the lease still held.
func (n *Conn) Fill(key, value string, cas uint64) (bool, error) {
	return n.store(fmt.Sprintf("ms %s %d C%d\r\n%s\r\n", key, len(value), cas, value))
}

func (n *Conn) store(command string) (bool, error) {
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
	return false, fmt.Errorf("%s answered %q", n.addr, line)
}

// Delete removes a key, as a reader does with a fill that came too late.
func (n *Conn) Delete(key string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.say("md " + key + "\r\n")
	return err
}

// SetAll stores one value under many keys.
func (n *Conn) SetAll(keys []string, value string) error {
	return n.all(keys, func(k string) string { return fmt.Sprintf("ms %s %d q\r\n%s\r\n", k, len(value), value) }, nil)
}

// FlushAll makes it forget everything.
func (n *Conn) FlushAll() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	line, err := n.say("flush_all\r\n")
	if err == nil && line != "OK" {
		err = fmt.Errorf("%s answered %q", n.addr, line)
	}
	return err
}

// Deletes is how many deletes it has carried out since its start, of keys that were there and of others.
func (n *Conn) Deletes() (sum int64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line, err := n.say("stats\r\n")
	for ; err == nil && line != "END"; line, err = n.line() {
		f := strings.Fields(line)
		if len(f) == 3 && (f[1] == "delete_hits" || f[1] == "delete_misses") {
			count, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s answered %q", n.addr, line)
			}
			sum += count
		}
	}
	return sum, err
}

// Present are those of the keys that have a value, or a lease.
func (n *Conn) Present(keys []string) ([]string, error) {
	var out []string
	err := n.all(keys, func(k string) string { return "mg " + k + " k q\r\n" }, func(line string) bool {
		key, ok := strings.CutPrefix(line, "HD k")
		out = append(out, key)
		return ok
	})
	return out, err
}

// all sends a quiet command a key. What is answered goes to line, which says whether it was well-formed.
func (n *Conn) all(keys []string, command func(string) string, line func(string) bool) error {
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
				return fmt.Errorf("%s answered %q", n.addr, answer)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Conn) say(command string) (string, error) {
	if n.c == nil {
		if err := n.connect(); err != nil {
			return "", err
		}
	}
	n.c.SetDeadline(time.Now().Add(n.patience))
	if _, err := n.c.Write([]byte(command)); err != nil {
		n.hangUp()
		return "", err
	}
	return n.line()
}

func (n *Conn) line() (string, error) {
	line, err := n.r.ReadString('\n')
	if err != nil {
		n.hangUp()
	}
	return strings.TrimRight(line, "\r\n"), err
}
