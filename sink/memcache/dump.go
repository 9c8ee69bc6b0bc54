package memcache

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"invalidator/sink"
)

const (
	dumpBuffer  = 64 << 10               // bytes that are taken apart at once
	maxDumpLine = 2 << 10                // bytes of a line: a key of 250 bytes has up to 750 as it is written
	expansion   = 30 * time.Second       // more, before the first byte: the hash table may be expanding, which the crawler waits for; and behind END
	leastQuiet  = 500 * time.Millisecond // that a node may say nothing, however few buckets it has
)

// silence is how long a node may say nothing. The crawler writes when it has some kilobytes, so that a table of many buckets, of which few
// hold a live item, is silent until all were looked at: 12 s were seen for 2^26 of them. After each thousand it sleeps; a millisecond is
// more than it takes for these, and for waking up.
func (st *stats) silence() time.Duration {
	return leastQuiet + time.Duration(1<<st.hashPower/1000)*(st.crawlerSleep+time.Millisecond)
}

// Dump calls f with every item that the node holds from beginning to end of it, in no order: the key's bytes, valid during the call, and
// the CAS value (0: it has none). Items that come, change or go meanwhile may be among them, twice or not at all. f must not block, nor
// take longer than the server does for a key (a microsecond or two): 16 MiB are kept for it, then the dump ends, void. A server up to 1.6.18 is not
// held back for it: as long as nobody reads, its clients wait. A later one is, for as long as f goes on.
//
// A nil error: all were shown. A *sink.BusyError: the crawler is at work, and nothing was asked. A *sink.NoDumpError: that node will
// never do it. A *sink.VoidError: what was shown is not all. Others: the node cannot be asked, or ctx has ended.
//
// It has a connection of its own, on which nothing follows the command, and looks there first whether the node can be asked (mayDump). Between the
// two somebody else's dump may begin, so a fleet has one that dumps.
func (c *Client) Dump(ctx context.Context, node string, f func(key []byte, cas uint64)) error {
	l, before, err := c.askStats(ctx, node)
	if err != nil {
		return err
	}
	defer l.close()
	st, err := l.lookAgain(ctx, before)
	if err == nil {
		err = newDump(l, st).run(f)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("dumping node %s: %w", node, ctx.Err())
	}
	return err
}

// growthOver is how long a node's items are watched before it is dumped.
const growthOver = 100 * time.Millisecond

// lookAgain returns the node's figures of right before a dump. An error says that it must not be dumped.
func (l *metaLink) lookAgain(ctx context.Context, before *stats) (*stats, error) {
	if err := l.mayDump(before, before); err != nil {
		return nil, err
	}
	sleep(ctx, growthOver)
	st, err := l.stats()
	if err != nil {
		return nil, fmt.Errorf("asking node %s for its stats again: %w", l.node, err)
	}
	return st, l.mayDump(st, before)
}

// mayDump is nil where the node can be asked for a dump, by its figures and those of growthOver before.
func (l *metaLink) mayDump(st, before *stats) error {
	switch {
	case !st.crawler:
		return noCrawler(l.node)
	case !st.dumps:
		return noDumps(l.node)
	case st.Running: // a second dump while the reader of the first pauses hangs a thread of the server, with every client on it
		return &sink.BusyError{Node: l.node}
	case st.grows(before):
		return &sink.BusyError{Node: l.node, Why: fmt.Sprintf("its hash table grows, or is about to (%d items, 2^%d buckets), and a memcached that is asked for a dump just then may never answer anything again",
			st.CurrItems, st.hashPower)}
	}
	return nil
}

// grows says whether the hash table does, or may within the next second. When it begins to, memcached holds the crawler's lock until each of its
// threads has stopped for a moment. One that is asked for a dump waits for that lock: neither ever goes on, nor does any client. And
// where the crawler has begun just before, it waits for the table, and that for the crawler, though clients go on. (1.6.18)
func (st *stats) grows(before *stats) bool {
	if st.hashPower >= maxHashPower {
		return false
	}
	limit := uint64(3) << st.hashPower / 2 // items, above which it grows: it looks each second
	const second = uint64(time.Second / growthOver)
	return st.expanding || st.CurrItems+limit/1000+second*max(st.CurrItems, before.CurrItems)-second*before.CurrItems > limit
}

func noCrawler(node string) error {
	return &sink.NoDumpError{Node: node, Why: "its LRU crawler is disabled; start it without `-o no_lru_crawler`, or send it `lru_crawler enable`"}
}

func noDumps(node string) error {
	return &sink.NoDumpError{Node: node, Why: "it runs with -X (--disable-dumping); start it without"}
}

// dump takes one apart.
type dump struct {
	link     *metaLink
	incoming *incoming
	buf      []byte // buf[from:to] is next
	from, to int
}

func newDump(l *metaLink, st *stats) *dump {
	return &dump{link: l, incoming: newIncoming(l.conn, st.silence(), st.version.writesFreely()), buf: make([]byte, dumpBuffer)}
}

// run is a dump from the command to its end, after which the connection is closed.
func (d *dump) run(f func(key []byte, cas uint64)) error {
	if err := d.link.say("lru_crawler metadump hash"); err != nil {
		return d.void(err)
	}
	stop := d.incoming.start()
	defer stop()
	for first := true; ; first = false {
		line, err := d.line()
		if err != nil {
			return d.void(err)
		}
		switch {
		case string(line) == "END\r":
			return d.end()
		case first && string(line) == "OK\r": // as the protocol's description has it; no server up to 1.6.18 says it
			continue
		}
		key, cas, ok := parseDumpLine(line)
		switch {
		case ok:
			f(key, cas)
		case first:
			return d.refused(bytes.TrimSuffix(line, []byte("\r")))
		default:
			return d.void(fmt.Errorf("a line that is none of a dump: %.100q", line))
		}
	}
}

// void is a *sink.VoidError.
func (d *dump) void(err error) error { return &sink.VoidError{Node: d.link.node, Err: err} }

// refused says what a first line means that is none of a dump.
func (d *dump) refused(line []byte) error {
	node := d.link.node
	switch text := string(line); {
	case bytes.HasPrefix(line, []byte("BUSY")):
		return &sink.BusyError{Node: node}
	case text == "CLIENT_ERROR lru crawler disabled":
		return noCrawler(node)
	case text == "ERROR metadump not allowed":
		return noDumps(node)
	case text == "ERROR":
		return &sink.NoDumpError{Node: node, Why: "it does not know `lru_crawler metadump`, as a proxy or a memcached before 1.4.31; " + nameNodes}
	case bytes.HasPrefix(line, []byte("BADCLASS")):
		return &sink.NoDumpError{Node: node, Why: "it does not know `lru_crawler metadump hash`: it needs a newer memcached, as 1.6.18"}
	}
	return d.void(&answerError{line: string(line)})
}

// line returns the next one without its line feed, valid until the next call.
func (d *dump) line() ([]byte, error) {
	for seen := d.from; ; {
		if n := bytes.IndexByte(d.buf[seen:d.to], '\n'); n >= 0 {
			line := d.buf[d.from : seen+n]
			d.from = seen + n + 1
			return line, nil
		}
		if d.to-d.from > maxDumpLine {
			return nil, fmt.Errorf("a line of more than %d bytes: %.100q", maxDumpLine, d.buf[d.from:d.to])
		}
		d.to = copy(d.buf, d.buf[d.from:d.to])
		d.from, seen = 0, d.to
		n, err := d.incoming.take(d.buf[d.to:])
		if err != nil {
			return nil, err
		}
		d.to += n
	}
}

// end makes sure that nothing is behind END, by asking for the version: a server that could not write for a second writes END into the middle of
// what it still has.
func (d *dump) end() error {
	behind := d.buf[d.from:d.to]
	if len(behind) == 0 {
		line, err := d.askVersion()
		if err != nil {
			return d.void(fmt.Errorf("asking whether END was the end: %w", err))
		}
		if bytes.HasPrefix(line, []byte("VERSION ")) && d.from == d.to {
			return nil
		}
		behind = line
	}
	return d.void(fmt.Errorf("%.100q came behind END", behind))
}

func (d *dump) askVersion() ([]byte, error) {
	if err := d.link.conn.SetWriteDeadline(time.Now().Add(d.link.timeout)); err != nil {
		return nil, fmt.Errorf("setting the deadline: %w", err)
	}
	if _, err := d.link.conn.Write([]byte("version\r\n")); err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	return d.line()
}
