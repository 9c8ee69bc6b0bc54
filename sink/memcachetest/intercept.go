package memcachetest

// Intercept is called with every command line before the server carries it out: the ordinal of its connection, from 1, and
// the line without its end. Within a dump it is called with every line of it too (key=…, END), which is then what is carried out. It runs in
// that connection's goroutine and may block it.
type Intercept func(conn int, line string) Reply

// Reply is written before anything else, as it stands: a whole answer with its line end, half a line, or nothing.
type Reply struct {
	Text string
	Then Action
}

// Action is what the server does with an intercepted command.
type Action int

const (
	Serve  Action = iota // carry it out and answer
	Skip                 // do nothing more
	Hangup               // close the connection
	Stall                // read on, and never answer on this connection again
)

// Intercept puts f between the clients and the server; nil takes it away.
func (s *Server) Intercept(f Intercept) {
	if f == nil {
		s.intercept.Store(nil)
		return
	}
	s.intercept.Store(&f)
}
