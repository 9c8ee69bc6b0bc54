package memcache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"invalidator/sink"
)

// Stats asks a node for its figures, on a connection of its own. Its error is a *sink.NoDumpError where what answers is no memcached
// that has them, as a proxy; any other is about this attempt.
func (c *Client) Stats(ctx context.Context, node string) (sink.NodeStats, error) {
	l, st, err := c.askStats(ctx, node)
	if err != nil {
		return sink.NodeStats{}, err
	}
	l.close()
	return st.NodeStats, nil
}

// stats is what a node says of itself, as far as anybody here asks.
type stats struct {
	sink.NodeStats
	version      Version
	time, uptime int64         // seconds
	hashPower    uint64        // its hash table has 2^hashPower buckets
	crawlerSleep time.Duration // the LRU crawler's, after each thousand items or buckets
	expanding    bool          // the hash table grows
	crawler      bool          // it has an LRU crawler
	dumps        bool          // it does not run with -X
	known        map[string]bool
}

// wanted are the figures without which nothing here can be decided.
var wanted = []string{"pid", "time", "uptime", "cmd_get", "cmd_set", "get_misses", "curr_items", "cas_enabled"}

// crawlerRuns is one that is wanted where there is a crawler.
const crawlerRuns = "lru_crawler_running"

// maxHashPower is memcached's bound.
const maxHashPower = 32

// take notes one line, STAT <name> <value>.
func (st *stats) take(name, value string) (err error) {
	switch name {
	case "version":
		st.version = Version(value)
	case "pid":
		st.Pid, err = strconv.ParseInt(value, 10, 64)
	case "time":
		st.time, err = strconv.ParseInt(value, 10, 64)
	case "uptime":
		st.uptime, err = strconv.ParseInt(value, 10, 64)
	case "cmd_get":
		st.CmdGet, err = strconv.ParseUint(value, 10, 64)
	case "cmd_set":
		st.CmdSet, err = strconv.ParseUint(value, 10, 64)
	case "get_misses":
		st.GetMisses, err = strconv.ParseUint(value, 10, 64)
	case "curr_items":
		st.CurrItems, err = strconv.ParseUint(value, 10, 64)
	case crawlerRuns:
		st.Running = value != "0"
	case "hash_power_level":
		st.hashPower, err = strconv.ParseUint(value, 10, 8)
		st.hashPower = min(st.hashPower, maxHashPower)
	case "slab_reassign_rescues", "slab_reassign_chunk_rescues":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 64)
		st.Moved += n
	case "hash_is_expanding":
		st.expanding = value != "0"
	case "cas_enabled":
		st.CAS = value == "yes"
	case "lru_crawler":
		st.crawler = value == "yes"
	case "dump_enabled":
		st.dumps = value == "yes"
	case "lru_crawler_sleep":
		var us int64
		us, err = strconv.ParseInt(value, 10, 32)
		st.crawlerSleep = time.Duration(us) * time.Microsecond
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("its %s: %w", name, err)
	}
	st.known[name] = true
	return nil
}

// askStats returns the connection with the answer: nothing is pending on it.
func (c *Client) askStats(ctx context.Context, node string) (*metaLink, *stats, error) {
	l, st, err := c.tryStats(ctx, node, false)
	if errors.Is(err, errHungUp) { // as a node does that is restarted, and a proxy always
		l, st, err = c.tryStats(ctx, node, true)
	}
	var no *sink.NoDumpError
	switch {
	case err == nil:
		return l, st, nil
	case errors.As(err, &no):
		return nil, nil, no
	case errors.Is(err, errHungUp):
		return nil, nil, &sink.NoDumpError{Node: node, Why: "it answers `version` and hangs up on `stats`, as a proxy does; " + nameNodes}
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return nil, nil, fmt.Errorf("asking node %s for its stats: %w", node, err)
}

const nameNodes = "the ring must name the memcached nodes themselves"

// errHungUp says that the connection was closed where an answer to stats was due.
var errHungUp = errors.New("it closed the connection")

// hungUp says whether the other side closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// tryStats asks once. With prove the node is asked for its version first: so it answers, and hangs up on stats itself.
func (c *Client) tryStats(ctx context.Context, node string, prove bool) (*metaLink, *stats, error) {
	l, err := c.side(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	if prove {
		_, err = l.version()
	}
	var st *stats
	if err == nil {
		st, err = l.stats()
	}
	if err != nil {
		l.close()
		return nil, nil, err
	}
	return l, st, nil
}

// side is a connection to ask a node what no sender asks; it closes itself when ctx ends.
func (c *Client) side(ctx context.Context, node string) (*metaLink, error) {
	conn, err := c.dial.open(ctx, node)
	if err != nil {
		return nil, err
	}
	return &metaLink{node: node, conn: conn, in: bufio.NewReader(conn), timeout: c.opts.Timeout}, nil
}

// say sends a command, or several.
func (l *metaLink) say(commands string) error {
	l.out = append(append(l.out[:0], commands...), "\r\n"...)
	return l.write()
}

func (l *metaLink) stats() (*stats, error) {
	if err := l.say("stats\r\nstats settings"); hungUp(err) {
		return nil, errHungUp
	} else if err != nil {
		return nil, err
	}
	st := &stats{crawler: true, dumps: true, known: make(map[string]bool)}
	for lines, ends := 0, 0; ends < 2; lines++ {
		line, err := l.readLine()
		switch {
		case lines == 0 && hungUp(err):
			return nil, errHungUp
		case err != nil:
			return nil, err
		case string(line) == "END":
			ends++
			continue
		}
		word, rest, _ := bytes.Cut(line, []byte(" "))
		name, value, _ := bytes.Cut(rest, []byte(" "))
		switch {
		case lines == 0 && string(line) == "ERROR":
			return nil, &sink.NoDumpError{Node: l.node, Why: "it does not know `stats`, as a proxy does not; " + nameNodes}
		case string(word) != "STAT":
			return nil, &answerError{line: string(line)}
		}
		if err := st.take(string(name), string(value)); err != nil {
			return nil, err
		}
	}
	for _, name := range append([]string{crawlerRuns}, wanted...) {
		if !st.known[name] && (name != crawlerRuns || st.crawler) {
			return nil, &sink.NoDumpError{Node: l.node, Why: fmt.Sprintf("its stats have no %s: it is a proxy, or a memcached before 1.5; %s", name, nameNodes)}
		}
	}
	if behind, _ := l.in.Peek(l.in.Buffered()); len(behind) > 0 {
		return nil, fmt.Errorf("%.100q came behind them", behind)
	}
	st.Start = st.time - st.uptime
	return st, nil
}
