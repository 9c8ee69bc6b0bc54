package memcache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// dialFunc is net.Dialer's and tls.Dialer's DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer opens connections to nodes. A name is resolved at each dial, and each of its addresses is tried until one takes the connection.
type dialer struct {
	dial    dialFunc
	timeout time.Duration
	token   func() string // what a node that runs with -Y wants to hear first; nil: nothing
	wait    time.Duration
}

func newDialer(opts Options) dialer {
	d := dialer{dial: (&net.Dialer{}).DialContext, timeout: opts.DialTimeout, wait: opts.Timeout}
	if opts.TLS != nil {
		d.dial = (&tls.Dialer{Config: opts.TLS}).DialContext
	}
	if opts.User != "" {
		d.token = func() string { return opts.User + " " + opts.Password() }
	}
	return d
}

// open dials, and authenticates where it should. The connection closes itself when ctx ends.
func (d dialer) open(ctx context.Context, addr string) (net.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.dial(dialCtx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	bound := &boundConn{Conn: conn, release: context.AfterFunc(ctx, func() { conn.Close() })}
	if d.token == nil {
		return bound, nil
	}
	if err := d.authenticate(bound); err != nil {
		bound.Close()
		return nil, fmt.Errorf("authenticating: %w", err)
	}
	return bound, nil
}

// ErrAuth is the reason, in NodeState.LastError and the log, why nothing reaches a node that refuses the password.
var ErrAuth = errors.New("the node refuses the user or the password (cache.node.user, cache.node.password)")

// authenticate says the token: for a node that runs with -Y it is the value of a first set, whatever its key. A node without it
// takes that for a set, which leaves nothing: its time has passed.
func (d dialer) authenticate(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(d.wait)); err != nil {
		return fmt.Errorf("setting the deadline: %w", err)
	}
	token := d.token()
	if _, err := fmt.Fprintf(conn, "set auth 0 %d %d\r\n%s\r\n", expired, len(token), token); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	line, err := readAnswer(conn)
	switch {
	case err != nil:
		return err
	case line == "CLIENT_ERROR authentication failure":
		return ErrAuth
	case line != "STORED":
		return &answerError{line: line}
	}
	return nil
}

// expired is a time of an item that passed long ago: above 30 days it is a Unix time. (Proxies refuse one below zero.)
const expired = 30*24*60*60 + 1

// maxAnswer is more than any answer to a set has, in bytes.
const maxAnswer = 1024

// readAnswer reads a line, a byte at a time, and nothing behind it.
func readAnswer(conn net.Conn) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < maxAnswer; {
		if _, err := conn.Read(b); err != nil {
			return "", fmt.Errorf("reading: %w", err)
		}
		if b[0] == '\n' {
			if len(line) > 0 && line[len(line)-1] == '\r' {
				line = line[:len(line)-1]
			}
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", &answerError{line: string(line)}
}

// boundConn is a connection that lives no longer than a context.
type boundConn struct {
	net.Conn
	release func() bool
}

func (c *boundConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// remoteIP is the address that a connection leads to; the zero Addr where it has none.
func remoteIP(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return plainIP(at.Addr())
}

// plainIP is an address as it can be compared.
func plainIP(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
