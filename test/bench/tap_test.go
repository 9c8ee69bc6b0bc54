//go:build bench

package bench

import (
	"bufio"
	"hash/maphash"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

// tap stands between workers and a memcached. It notes when each key's deletes were acknowledged, and can be a bad node.
type tap struct {
	addr string
	node *harness.Node
	l    net.Listener
	slow atomic.Int64 // nanoseconds that each answer takes

	mu    sync.Mutex // guards what follows
	away  bool       // nothing is answered, and nobody connects
	conns map[net.Conn]bool
	seen  map[uint64]stamp // by the hash of a key: millions of texts would keep the garbage collector busy

	ended sync.WaitGroup
}

// stamp is when a key's first delete was acknowledged, and how many were.
type stamp struct {
	first int64 // Unix ns
	count int
}

var seed = maphash.MakeSeed()

func newTap(t *testing.T, node *harness.Node) *tap {
	t.Helper()
	p := &tap{addr: harness.FreeAddr(t), node: node, conns: map[net.Conn]bool{}, seen: map[uint64]stamp{}}
	var err error
	if p.l, err = net.Listen("tcp", p.addr); err != nil {
		t.Fatal(err)
	}
	p.ended.Go(func() {
		for {
			c, err := p.l.Accept()
			if err != nil {
				return
			}
			if !p.hold(c) {
				c.Close()
				continue
			}
			p.ended.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		p.l.Close()
		p.lose()
		p.ended.Wait()
	})
	return p
}

func (p *tap) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return false
	}
	p.conns[c] = true
	return true
}

// lose makes the node one that is gone, until it is back.
func (p *tap) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

func (p *tap) back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

// serve carries commands to the node and answers back. The commands up to an mn are a batch, which its MN acknowledges.
func (p *tap) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", p.node.Addr)
	if err != nil {
		return
	}
	defer up.Close()
	batches := make(chan []string, 1024)
	p.ended.Go(func() {
		defer up.Close()
		defer close(batches)
		p.commands(c, up, batches)
	})
	p.answers(c, up, batches)
	c.Close()
	for range batches { // until the other direction has ended
	}
}

func (p *tap) commands(from, to net.Conn, batches chan<- []string) {
	r, w := bufio.NewReaderSize(from, 1<<17), bufio.NewWriterSize(to, 1<<17)
	var batch []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if f := strings.Fields(line); len(f) > 1 && f[0] == "md" {
			batch = append(batch, f[1])
		} else if len(f) == 1 && f[0] == "mn" {
			batches <- batch
			batch = nil
		}
		w.WriteString(line)
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

func (p *tap) answers(to, from net.Conn, batches <-chan []string) {
	r := bufio.NewReaderSize(from, 1<<17)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if line == "MN\r\n" {
			if d := time.Duration(p.slow.Load()); d > 0 {
				<-time.After(d)
			}
			batch, ok := <-batches
			if !ok {
				return
			}
			p.note(batch)
		}
		if _, err := to.Write([]byte(line)); err != nil {
			return
		}
	}
}

func (p *tap) note(keys []string) {
	now := time.Now().UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range keys {
		h := maphash.String(seed, k)
		s := p.seen[h]
		if s.count == 0 {
			s.first = now
		}
		s.count++
		p.seen[h] = s
	}
}

// of is what it noted of a key.
func (p *tap) of(key string) stamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[maphash.String(seed, key)]
}
