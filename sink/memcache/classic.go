package memcache

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/bradfitz/gomemcache/memcache"

	"invalidator/sink"
)

// classicLink speaks the classic protocol. It is a gomemcache client of one connection; since that client takes no context,
// the connection brings its own.
type classicLink struct {
	node   string
	client *memcache.Client
}

// openClassicLink connects and asks for the version, so that it stands when it is first used.
func openClassicLink(ctx context.Context, addr string, d dialer, opts Options) (*classicLink, error) {
	client := memcache.NewFromSelector(oneNode(addr))
	client.Timeout = opts.Timeout
	client.MaxIdleConns = 1
	client.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) { return d.open(ctx, addr) }
	l := &classicLink{node: addr, client: client}
	if _, err := l.exchange(nil, true); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// exchange is link's. Every delete has its own answer, so all of them are careful. There are no stale marks in this protocol.
func (l *classicLink) exchange(batch []entry, _ bool) (answered int, err error) {
	if len(batch) == 0 {
		if err := l.client.Ping(); err != nil {
			return 0, fmt.Errorf("asking for the version: %w", err)
		}
	}
	for i, e := range batch {
		err := l.client.Delete(e.key)
		switch {
		case err == nil, errors.Is(err, memcache.ErrCacheMiss):
		case refusesKey(err.Error()), errors.Is(err, memcache.ErrMalformedKey):
			return i, &sink.RefusedError{Copy: sink.Copy{Node: l.node, Key: e.key}, Answer: err.Error()}
		default:
			return i, fmt.Errorf("deleting: %w", err)
		}
	}
	return len(batch), nil
}

func (l *classicLink) close() { l.client.Close() }

func (l *classicLink) classic() bool { return true }

// oneNode is a gomemcache selector of a single node. Unlike gomemcache's own list it keeps the name, for the dialer to resolve.
type oneNode string

func (n oneNode) Network() string                      { return "tcp" }
func (n oneNode) String() string                       { return string(n) }
func (n oneNode) PickServer(string) (net.Addr, error)  { return n, nil }
func (n oneNode) Each(each func(net.Addr) error) error { return each(n) }
