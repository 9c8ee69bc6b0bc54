package memcachetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Version is what the server says it is: the memcached whose behaviour it copies.
const Version = "1.6.18"

// TB is the part of testing.TB that Start and Process need.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Server is one node. Its methods are safe for concurrent use.
type Server struct {
	listener  net.Listener
	store     *store
	settings  settings
	pid       int64
	started   time.Time
	counters  counters
	crawler   crawler
	workers   [workers]sync.Mutex // each held while its thread hangs
	intercept atomic.Pointer[Intercept]
	token     atomic.Pointer[string] // what a connection says first; nil: nothing
	served    sync.WaitGroup         // the accept loop and every connection

	mu struct {
		sync.Mutex
		closed bool
		conns  map[net.Conn]struct{}
		total  int // connections ever accepted
	}
}

// Start listens on a free port of the loopback address until the test ends. Arguments are Listen's.
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	s, err := Listen("127.0.0.1:0", args...)
	if err != nil {
		tb.Fatalf("starting the in-process memcached: %v", err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Listen serves on a TCP address; port 0 takes a free one. It behaves as a memcached with these arguments: -C (no CAS values), -X (no
// dumps), -o no_lru_crawler. Each server is another process, as its stats show it.
func Listen(addr string, args ...string) (*Server, error) {
	settings, err := readArgs(args)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s := newServer(settings)
	s.listener = listener
	s.mu.conns = make(map[net.Conn]struct{})
	s.served.Go(s.accept)
	return s, nil
}

func newServer(set settings) *Server {
	return &Server{store: newStore(set.cas), settings: set, pid: pids.Add(1), started: time.Now()}
}

// Addr is host:port, as a ring record names the node.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close drops every connection and returns when nothing of the server runs any more. The items are gone with it.
func (s *Server) Close() {
	s.mu.Lock()
	s.mu.closed = true
	conns := s.mu.conns
	s.mu.conns = nil
	s.mu.Unlock()
	s.listener.Close()
	for conn := range conns {
		conn.Close()
	}
	s.served.Wait()
}

// Conns returns how many connections are open, and how many ever were.
func (s *Server) Conns() (open, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns), s.mu.total
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // Close has closed the listener
		}
		number, ok := s.add(conn)
		if !ok {
			conn.Close()
			return
		}
		s.served.Go(func() {
			defer s.remove(conn)
			s.serve(conn, number)
		})
	}
}

func (s *Server) add(conn net.Conn) (number int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return 0, false
	}
	s.mu.conns[conn] = struct{}{}
	s.mu.total++
	return s.mu.total, true
}

func (s *Server) remove(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, conn)
}

// lineLimit is what a command line may hold, in bytes; memcached too hangs up on a client that sends more without a line end.
const lineLimit = 64 << 10

// session is one connection at work.
type session struct {
	server *Server
	store  *store
	number int         // of its connection, from 1
	worker *sync.Mutex // of its thread
	in     *bufio.Reader
	out    *bufio.Writer
	token  *string // what the client has to say first; nil: nothing any more
}

// newSession serves a client that says what in has.
func (s *Server) newSession(number int, in io.Reader, out io.Writer) *session {
	return &session{
		server: s, store: s.store, number: number, worker: &s.workers[number%workers],
		in: bufio.NewReaderSize(in, lineLimit), out: bufio.NewWriter(out), token: s.token.Load(),
	}
}

// What ends a session: the client asked for it, or an intercept.
var (
	errQuit   = errors.New("quit")
	errHangup = errors.New("hung up")
)

func (s *Server) serve(conn net.Conn, number int) {
	ses := s.newSession(number, conn, conn)
	for {
		command, err := ses.next()
		if err != nil {
			return
		}
		ses.await()
		serve, err := ses.meet(command)
		if serve {
			err = ses.run(command)
		}
		if err != nil {
			ses.out.Flush()
			return
		}
	}
}

// meet does what the intercept wants, and says whether the line is to be served.
func (ses *session) meet(line string) (serve bool, err error) {
	var reply Reply
	if f := ses.server.intercept.Load(); f != nil {
		reply = (*f)(ses.number, line)
	}
	ses.out.WriteString(reply.Text)
	switch reply.Then {
	case Hangup:
		return false, errHangup
	case Stall:
		ses.out.Flush()
		io.Copy(io.Discard, ses.in)
		return false, errHangup
	}
	return reply.Then == Serve, nil
}

// next reads a command without its line end. What was answered goes out before the session waits for more.
func (ses *session) next() (string, error) {
	if ses.in.Buffered() == 0 {
		if err := ses.out.Flush(); err != nil {
			return "", err
		}
	}
	line, err := ses.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
}

// run carries out one command. An error ends the session.
func (ses *session) run(command string) error {
	command, _, _ = strings.Cut(command, "\x00") // as memcached does: what follows a NUL is not seen
	words := strings.FieldsFunc(command, func(r rune) bool { return r == ' ' })
	if ses.token != nil {
		return ses.authenticate(words)
	}
	if len(words) == 0 {
		return ses.answer("ERROR")
	}
	if do, ok := commands[words[0]]; ok {
		return do(ses, words[1:])
	}
	return ses.answer("ERROR")
}

// commands is what the server knows. Each gets the words after its name.
var commands = map[string]func(*session, []string) error{
	"get": get(false), "gets": get(true), "set": set("set"), "add": set("add"), "cas": set("cas"), "delete": classicDelete,
	"flush_all": flushAll, "version": version, "stats": stats, "quit": func(*session, []string) error { return errQuit },
	"mg": metaGet, "ms": metaSet, "md": metaDelete, "mn": metaNoop, "lru_crawler": lruCrawler,
}

func (ses *session) answer(words ...string) error {
	for i, w := range words {
		if i > 0 {
			ses.out.WriteByte(' ')
		}
		ses.out.WriteString(w)
	}
	_, err := ses.out.WriteString("\r\n")
	return err
}

const (
	badFormat   = "CLIENT_ERROR bad command line format"
	badChunk    = "CLIENT_ERROR bad data chunk"
	tooLarge    = "SERVER_ERROR object too large for cache"
	maxKey      = 250     // bytes
	maxValue    = 1 << 20 // bytes; memcached's default item size, less its header
	relativeTTL = 60 * 60 * 24 * 30
)

// value reads a data block. A negative length, or one that the block does not have, is answered here; ok is false then.
func (ses *session) value(length int) (v []byte, ok bool, err error) {
	if length > maxValue {
		if _, err := io.CopyN(io.Discard, ses.in, int64(length)+2); err != nil {
			return nil, false, err
		}
		return nil, false, ses.answer(tooLarge)
	}
	v = make([]byte, length+2)
	if _, err := io.ReadFull(ses.in, v); err != nil {
		return nil, false, err
	}
	if v[length] != '\r' || v[length+1] != '\n' {
		return nil, false, ses.answer(badChunk)
	}
	return v[:length], true, nil
}
