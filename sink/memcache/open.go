package memcache

import (
	"context"
	"errors"
	"io"
)

// openLink connects to a node and has one answer from it. Where Meta is configured and the node does not know it, as a proxy or an old
// server, the connection speaks Classic; the next one asks again.
func (c *Client) openLink(ctx context.Context, addr string) (link, error) {
	if c.opts.Protocol == Classic {
		return opened(openClassicLink(ctx, addr, c.dial, c.opts))
	}
	l, err := openMetaLink(ctx, addr, c.dial, c.opts.Timeout)
	if !errors.Is(err, ErrNotMeta) {
		return opened(l, err)
	}
	old, oldErr := openClassicLink(ctx, addr, c.dial, c.opts)
	if oldErr != nil {
		return nil, err
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return old, nil
	}
	// It hung up, which a node does that is restarted, too.
	l, err = openMetaLink(ctx, addr, c.dial, c.opts.Timeout)
	if errors.Is(err, ErrNotMeta) {
		return old, nil
	}
	old.close()
	return opened(l, err)
}

// opened keeps a nil pointer from being a link.
func opened[L link](l L, err error) (link, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// connect opens a connection to the node, and tells where it speaks another protocol than it did, or than was configured.
func (n *node) connect(ctx context.Context) (link, error) {
	l, err := n.client.open(ctx, n.addr)
	if err != nil {
		return nil, err
	}
	if n.connected(l) {
		if l.classic() {
			n.log.Warn("node does not know the meta protocol: it is spoken to in the classic one, with a round trip a delete, no stale marks and no keys in base64")
		} else {
			n.log.Info("node speaks the meta protocol")
		}
	}
	return l, nil
}
