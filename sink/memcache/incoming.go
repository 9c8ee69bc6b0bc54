package memcache

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	readSize  = 64 << 10               // bytes that are read at once
	maxChunks = 256                    // of readSize, that were read and not yet taken: 16 MiB, some 200,000 keys, or 0.3 s of what a node writes
	patience  = 500 * time.Millisecond // for which a node may be held back that can: one that cannot write for a second writes something twice
)

// incoming reads a dump as it comes, in a goroutine of its own. Up to 1.6.18 the crawler writes with a part of the hash table locked: as long as
// nobody reads, each client that asks for a key in that part waits, and all others on its thread with it. Such a node is waited for by nobody.
type incoming struct {
	conn    net.Conn
	silence time.Duration // how long nothing may come
	patient bool          // the node may be held back
	ended   chan struct{} // closed when nothing is read any more
	more    chan struct{} // holds one signal: there is something to take
	taken   chan struct{} // holds one signal: there is room for more

	mu struct {
		sync.Mutex
		chunks [][]byte // what was read and not yet taken, each with room for readSize
		from   int      // what of the first one was taken
		spare  [][]byte // those that were taken, to be used again
		err    error    // why nothing more comes
	}
}

func newIncoming(conn net.Conn, silence time.Duration, patient bool) *incoming {
	return &incoming{conn: conn, silence: silence, patient: patient, ended: make(chan struct{}), more: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// start begins to read. What it returns closes the connection, and returns when nothing is read any more.
func (in *incoming) start() (stop func()) {
	go func() {
		defer close(in.ended)
		in.run()
	}()
	return func() {
		in.conn.Close()
		<-in.ended
	}
}

// run reads until it fails, or more was read than is taken, and closes the connection.
func (in *incoming) run() {
	defer in.conn.Close()
	buf := make([]byte, readSize)
	last := [2]byte{'\r', '\n'}
	for {
		began, wait := time.Now(), in.silence
		if last == [2]byte{'\r', '\n'} { // nothing has come yet; or END, and what is asked behind it
			wait += expansion
		}
		n, err := 0, in.conn.SetReadDeadline(began.Add(wait))
		if err == nil {
			n, err = in.conn.Read(buf)
		}
		for _, b := range buf[max(0, n-2):n] {
			last = [2]byte{last[1], b}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("nothing came for %s", time.Since(began).Round(time.Millisecond))
		} else if err != nil {
			err = fmt.Errorf("reading: %w", err)
		}
		var full bool
		if buf, full = in.put(buf[:n]); err == nil && full && !in.awaitRoom() {
			err = fmt.Errorf("whom its keys are told does not keep up: %d MiB wait", maxChunks*readSize>>20)
		}
		if err != nil {
			in.fail(err)
			return
		}
	}
}

// awaitRoom returns false where none comes, or is waited for.
func (in *incoming) awaitRoom() bool {
	if !in.patient {
		return false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-in.taken:
		return true
	case <-timer.C:
		return false
	}
}

// fail says why nothing more comes.
func (in *incoming) fail(err error) {
	defer signal(in.more)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.err = err
}

// put keeps what was read, and returns where to read next. full says that no more should be.
func (in *incoming) put(read []byte) (next []byte, full bool) {
	defer signal(in.more)
	in.mu.Lock()
	defer in.mu.Unlock()
	last := len(in.mu.chunks) - 1
	switch {
	case len(read) == 0:
		next = read
	case last >= 0 && len(in.mu.chunks[last])+len(read) <= readSize: // so that small reads hold no more than they have
		in.mu.chunks[last] = append(in.mu.chunks[last], read...)
		next = read
	default:
		in.mu.chunks = append(in.mu.chunks, read)
		if k := len(in.mu.spare); k > 0 {
			next, in.mu.spare = in.mu.spare[k-1], in.mu.spare[:k-1]
		} else {
			next = make([]byte, readSize)
		}
	}
	if full = len(in.mu.chunks) >= maxChunks; full {
		select {
		case <-in.taken: // of before
		default:
		}
	}
	return next[:readSize], full
}

// take moves what was read into p, which has room. It waits for at least a byte; without one there is an error.
func (in *incoming) take(p []byte) (int, error) {
	for {
		n, err := in.tryTake(p)
		if n > 0 || err != nil {
			return n, err
		}
		<-in.more
	}
}

func (in *incoming) tryTake(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.mu.chunks) == 0 {
		return 0, in.mu.err
	}
	first := in.mu.chunks[0]
	n := copy(p, first[in.mu.from:])
	if in.mu.from += n; in.mu.from == len(first) {
		in.mu.chunks = slices.Delete(in.mu.chunks, 0, 1)
		in.mu.spare, in.mu.from = append(in.mu.spare, first), 0
		signal(in.taken)
	}
	return n, nil
}
