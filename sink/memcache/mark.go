package memcache

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"invalidator/sink"
)

// markTTL is how long a mark stays, in seconds, so that one that nobody deletes is no litter.
const markTTL = 60

// Mark stores an empty item under key, which expires after 60 s, and returns its CAS value: what was written before has a lower one, what
// is written after a higher one. 0: the node has none (-C), or is spoken to in the classic protocol, where nothing can compare.
func (c *Client) Mark(ctx context.Context, node, key string) (cas uint64, err error) {
	if err := sink.CheckKey(key); err != nil {
		return 0, err
	}
	if c.opts.Protocol == Classic {
		return 0, nil
	}
	l, err := c.side(ctx, node)
	if err == nil {
		defer l.close()
		cas, err = l.mark(key)
	}
	switch {
	case err == nil:
		return cas, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return 0, fmt.Errorf("setting a mark on node %s: %w", node, err)
}

func (l *metaLink) mark(key string) (cas uint64, err error) {
	if err := l.say(fmt.Sprintf("ms %s 0 T%d c\r\n", key, markTTL)); err != nil {
		return 0, err
	}
	line, err := l.readLine()
	if err != nil {
		return 0, err
	}
	if string(line) == "ERROR" {
		return 0, nil // it knows no meta commands, and is spoken to in the classic protocol
	}
	if shown, ok := bytes.CutPrefix(line, []byte("HD c")); ok {
		if cas, err := strconv.ParseUint(string(shown), 10, 64); err == nil {
			return cas, nil
		}
	}
	return 0, &answerError{line: string(line)}
}
