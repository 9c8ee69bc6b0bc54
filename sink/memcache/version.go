package memcache

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// Version is which memcached a node says that it is: 1.6.18, also with something behind it. A proxy may say anything.
type Version string

// lastLocked is the last one whose crawler writes a dump with a part of the hash table locked.
var lastLocked = [3]int{1, 6, 18}

func (v Version) release() (numbers [3]int, ok bool) {
	_, err := fmt.Sscanf(string(v), "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2])
	return numbers, err == nil
}

// HoldsClients says whether it is a memcached up to 1.6.18: while nobody reads a dump of it, each client waits that asks for a key in the part of the
// hash table which is being written, and all others on its thread.
func (v Version) HoldsClients() bool {
	n, ok := v.release()
	return ok && slices.Compare(n[:], lastLocked[:]) <= 0
}

// writesFreely says whether the crawler surely holds no lock while it writes: from 1.6.19 on.
func (v Version) writesFreely() bool {
	n, ok := v.release()
	return ok && slices.Compare(n[:], lastLocked[:]) > 0
}

// Version asks a node which memcached it is, on a connection of its own.
func (c *Client) Version(ctx context.Context, node string) (Version, error) {
	l, err := c.side(ctx, node)
	if err != nil {
		return "", fmt.Errorf("asking node %s for its version: %w", node, err)
	}
	defer l.close()
	v, err := l.version()
	if err != nil {
		return "", fmt.Errorf("asking node %s for its version: %w", node, err)
	}
	return v, nil
}

// version asks for the version, and so whether all that was asked before is answered.
func (l *metaLink) version() (Version, error) {
	if err := l.say("version"); err != nil {
		return "", err
	}
	line, err := l.readLine()
	if err != nil {
		return "", err
	}
	v, ok := bytes.CutPrefix(line, []byte("VERSION "))
	if !ok {
		return "", &answerError{line: string(line)}
	}
	return Version(v), nil
}
