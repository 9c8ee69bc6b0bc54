package memcache

import "context"

// openLink connects to a node and has one answer from it.
func (c *Client) openLink(ctx context.Context, addr string) (link, error) {
	if c.opts.Protocol == Classic {
		l, err := openClassicLink(ctx, addr, c.dial, c.opts)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	l, err := openMetaLink(ctx, addr, c.dial, c.opts.Timeout)
	if err != nil {
		return nil, err
	}
	return l, nil
}
