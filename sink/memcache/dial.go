package memcache

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// dialFunc is net.Dialer's and tls.Dialer's DialContext.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer opens connections to nodes. A name is resolved at each dial, so that a replaced node is found at its new address.
type dialer struct {
	dial    dialFunc
	timeout time.Duration
}

func newDialer(opts Options) dialer {
	d := dialer{dial: (&net.Dialer{}).DialContext, timeout: opts.DialTimeout}
	if opts.TLS != nil {
		d.dial = (&tls.Dialer{Config: opts.TLS}).DialContext
	}
	return d
}

// open dials. The connection closes itself when ctx ends.
func (d dialer) open(ctx context.Context, addr string) (net.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := d.dial(dialCtx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return &boundConn{Conn: conn, release: context.AfterFunc(ctx, func() { conn.Close() })}, nil
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
