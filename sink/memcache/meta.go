package memcache

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"invalidator/sink"
)

// ErrNotMeta is what a node that knows no meta commands shows; it is then spoken to in the classic protocol. In NodeState.LastError and
// the log it says that neither was understood.
var ErrNotMeta = errors.New("the node does not speak the meta protocol")

// metaLink speaks the meta protocol.
type metaLink struct {
	node    string
	conn    net.Conn
	in      *bufio.Reader
	out     []byte // the batch's commands; the room is used again
	timeout time.Duration
}

// openMetaLink connects and asks for an `MN`, so that a node that cannot answer one is never handed a delete.
func openMetaLink(ctx context.Context, addr string, d dialer, timeout time.Duration) (*metaLink, error) {
	conn, err := d.open(ctx, addr)
	if err != nil {
		return nil, err
	}
	l := &metaLink{node: addr, conn: conn, in: bufio.NewReader(conn), timeout: timeout}
	if err := l.probe(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("probing with mn: %w", err)
	}
	return l, nil
}

func (l *metaLink) probe() error {
	l.out = append(l.out[:0], "mn\r\n"...)
	if err := l.write(); err != nil {
		return err
	}
	line, err := l.readLine()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w; it may be that %w", err, ErrNotMeta) // some proxies hang up on a command they do not know
	case err != nil:
		return err
	case string(line) == "ERROR":
		return ErrNotMeta
	case string(line) != "MN":
		return &answerError{line: string(line)}
	}
	return nil
}

// exchange is link's.
//
// Quiet deletes and stale marks answer NF or nothing, and MN closes the batch: it comes last, so every command before it was carried out, and
// no line said otherwise. One that compares may answer EX too, and shows its number with each answer. Careful ones are answered in
// the order they were sent: HD, NF or EX, or the line that ends the exchange.
func (l *metaLink) exchange(batch []entry, careful bool) (answered int, err error) {
	l.out = appendCommands(l.out[:0], batch, careful)
	if err := l.write(); err != nil {
		return 0, err
	}
	for lines := 0; ; lines++ {
		if careful {
			answered = lines
		}
		line, err := l.readLine()
		switch {
		case err != nil:
			return answered, err
		case string(line) == "MN" && (!careful || answered == len(batch)):
			return len(batch), nil
		case lines == len(batch) || !isDone(line) && !compared(line, batch, answered, careful):
			return answered, l.unexpected(line, batch, answered, careful)
		}
	}
}

func appendCommands(out []byte, batch []entry, careful bool) []byte {
	quiet := " q"
	if careful {
		quiet = ""
	}
	for i := range batch {
		e := &batch[i]
		out = append(out, "md "...)
		if e.base64 {
			out = base64.StdEncoding.AppendEncode(out, []byte(e.key))
			out = append(out, " b"...)
		} else {
			out = append(out, e.key...)
		}
		out = append(out, quiet...)
		if e.stale > 0 {
			out = append(out, " I T"...)
			out = strconv.AppendUint(out, uint64(e.stale), 10)
		}
		if e.comparing() {
			out = e.appendComparison(out, i, careful)
		}
		out = append(out, "\r\n"...)
	}
	return append(out, "mn\r\n"...)
}

// isDone says whether the line stands for a key that is not there, or is deleted or marked now.
func isDone(line []byte) bool { return string(line) == "HD" || string(line) == "NF" }

// unexpected says what a line means that closes the exchange.
func (l *metaLink) unexpected(line []byte, batch []entry, answered int, careful bool) error {
	if careful && answered < len(batch) && (refusesKey(string(line)) || batch[answered].knowsNoBase64(line)) {
		return &sink.RefusedError{Copy: sink.Copy{Node: l.node, Key: batch[answered].key}, Answer: string(line)}
	}
	return &answerError{line: string(line)}
}

// knowsNoBase64 says whether an answer to e alone is that of a node, or a proxy, which does not know the flag b: no retry helps. Of
// a stale mark, or one that compares, it may be those flags that are not known; that one is tried again as a plain delete.
func (e *entry) knowsNoBase64(line []byte) bool {
	return e.base64 && e.stale == 0 && !e.comparing() && bytes.HasPrefix(line, []byte("CLIENT_ERROR invalid")) && bytes.Contains(line, []byte("flag"))
}

// refusesKey says whether an answer can be meant for the key alone: the text that memcached has for keys it does not take.
// Other client errors (a missing authentication, a flag that a proxy does not know) would come for any key.
func refusesKey(answer string) bool {
	return strings.Contains(answer, "CLIENT_ERROR bad command line format")
}

func (l *metaLink) write() error {
	if err := l.conn.SetDeadline(time.Now().Add(l.timeout)); err != nil {
		return fmt.Errorf("setting the deadline: %w", err)
	}
	if _, err := l.conn.Write(l.out); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// readLine returns the next line without its end, nor the blank that some servers leave before it; it is valid until the next
// call. A line without an end is an error: MN and NF cut off may have been anything.
func (l *metaLink) readLine() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading: node closed the connection: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return bytes.TrimSuffix(bytes.TrimRight(line, "\r\n"), []byte(" ")), nil
}

func (l *metaLink) close() { l.conn.Close() }

func (l *metaLink) classic() bool { return false }

func (l *metaLink) remote() netip.Addr { return remoteIP(l.conn) }
