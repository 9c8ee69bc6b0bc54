package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"time"

	"invalidator/sink"
)

// answerTime is how long a node may take for one answer, its connection included.
const answerTime = time.Second

// lease is the right to fill one copy of a key, until somebody invalidates it.
type lease struct {
	sink.Copy
	wire  string // the key as it is sent
	flag  string // " b" where that is its base64
	conn  net.Conn
	in    *bufio.Reader
	cas   string
	empty bool // there was no value: readers wait for ours
}

// takeLease asks one node. It is nil where the node holds a good value, or where a reader is filling it already.
func takeLease(ctx context.Context, c sink.Copy, length time.Duration) (*lease, error) {
	l, err := dial(ctx, c)
	if err != nil {
		return nil, err
	}
	answer, err := l.ask("mg %s c s N%d%s", l.wire, int(length.Seconds()), l.flag)
	if err != nil {
		l.close()
		return nil, err
	}
	words := strings.Fields(answer) // HD c17 s0 W
	if len(words) < 4 || words[0] != "HD" || words[len(words)-1] != "W" {
		l.close()
		return nil, nil
	}
	l.cas, l.empty = words[1][1:], words[2] == "s0"
	return l, nil
}

func dial(ctx context.Context, c sink.Copy) (*lease, error) {
	l := &lease{Copy: c, wire: c.Key}
	inBase64, err := sink.CheckMetaKey(c.Key)
	if err != nil {
		return nil, err
	}
	if inBase64 {
		l.wire, l.flag = base64.StdEncoding.EncodeToString([]byte(c.Key)), " b"
	}
	if l.conn, err = (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "tcp", c.Node); err != nil {
		return nil, err
	}
	l.in = bufio.NewReader(l.conn)
	return l, nil
}

// fill stores the value. That the lease is void is no error: whoever voided it asks again.
func (l *lease) fill(value string, ttl time.Duration) error {
	answer, err := l.ask("ms %s %d C%s T%d%s\r\n%s", l.wire, len(value), l.cas, int(ttl.Seconds()), l.flag, value)
	if err == nil && answer != "HD" && answer != "EX" && answer != "NF" {
		err = fmt.Errorf("node %s: storing %s: %s", l.Node, sink.Show(l.Key), answer)
	}
	return err
}

// giveBack lets the next reader win. A stale value stays: it is better than none, and expires soon.
func (l *lease) giveBack() error {
	if !l.empty {
		return nil
	}
	_, err := l.ask("md %s C%s%s", l.wire, l.cas, l.flag)
	return err
}

// ask sends a command and reads the one line of its answer.
func (l *lease) ask(command string, args ...any) (string, error) {
	if err := l.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(l.conn, command+"\r\n", args...); err != nil {
		return "", err
	}
	line, err := l.in.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (l *lease) close() { l.conn.Close() }
