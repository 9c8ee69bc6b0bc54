package memcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"

	"invalidator/sink"
)

// classicLink speaks the classic protocol. It is a gomemcache client of one connection; since that client takes no context,
// the connection brings its own.
type classicLink struct {
	node   string
	client *memcache.Client
	verify bool       // NOT_FOUND proves nothing
	ip     netip.Addr // of the latest connection
}

// openClassicLink connects and asks for the version, so that it stands when it is first used.
func openClassicLink(ctx context.Context, addr string, d dialer, opts Options) (*classicLink, error) {
	l := &classicLink{node: addr, client: memcache.NewFromSelector(oneNode(addr)), verify: opts.VerifyNotFound}
	l.client.Timeout = opts.Timeout
	l.client.MaxIdleConns = 1
	l.client.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) {
		conn, err := d.open(ctx, addr)
		if err == nil {
			l.ip = remoteIP(conn)
		}
		return conn, err
	}
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
		if l.verify && errors.Is(err, memcache.ErrCacheMiss) {
			err = l.provenAbsent(e.key)
		}
		switch {
		case err == nil, errors.Is(err, memcache.ErrCacheMiss):
		case refusesKey(err.Error()), errors.Is(err, memcache.ErrMalformedKey):
			return i, &sink.RefusedError{Copy: sink.Copy{Node: l.node, Key: e.key}, Answer: err.Error()}
		default:
			if line, ok := answerIn(err); ok {
				err = &answerError{line: line}
			}
			return i, fmt.Errorf("deleting: %w", err)
		}
	}
	return len(batch), nil
}

// answerIn is the node's line in an error of gomemcache, which has it as quoted text alone.
func answerIn(err error) (line string, ok bool) {
	_, quoted, found := strings.Cut(err.Error(), "unexpected response line: ")
	if !found {
		return "", false
	}
	line, unquoteErr := strconv.Unquote(quoted)
	return strings.TrimRight(line, "\r\n"), unquoteErr == nil
}

// provenAbsent asks for proof of a NOT_FOUND, which some proxies answer when they only wrote the delete down for later: an add of an
// item whose time has passed leaves nothing, and is STORED only by a node that was reached and has no such key.
func (l *classicLink) provenAbsent(key string) error {
	err := l.client.Add(&memcache.Item{Key: key, Expiration: expired})
	if errors.Is(err, memcache.ErrNotStored) {
		return &answerError{line: "NOT_FOUND, though the key is there"}
	}
	if err != nil {
		return fmt.Errorf("the answer was NOT_FOUND, and proving it by an add failed: %w", err)
	}
	return nil
}

func (l *classicLink) classic() bool      { return true }
func (l *classicLink) remote() netip.Addr { return l.ip }
func (l *classicLink) close()             { l.client.Close() }

// oneNode is a gomemcache selector of a single node. Unlike gomemcache's own list it keeps the name, for the dialer to resolve.
type oneNode string

func (n oneNode) Network() string                      { return "tcp" }
func (n oneNode) String() string                       { return string(n) }
func (n oneNode) PickServer(string) (net.Addr, error)  { return n, nil }
func (n oneNode) Each(each func(net.Addr) error) error { return each(n) }
