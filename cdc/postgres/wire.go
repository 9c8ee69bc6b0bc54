package postgres

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// pgoutput's messages, protocol version 1, tuples in text. pglogrepl's own parser is not used: it panics on a message that
// is too short, and copies every column of every table before anybody can say that the table is not wanted. A message is
// held as one string, so that values are slices of it.
const (
	msgBegin    = 'B'
	msgCommit   = 'C'
	msgOrigin   = 'O'
	msgRelation = 'R'
	msgType     = 'Y'
	msgInsert   = 'I'
	msgUpdate   = 'U'
	msgDelete   = 'D'
	msgTruncate = 'T'
	msgMessage  = 'M'
)

// What stands before a tuple, and before each of its columns.
const (
	tupleNew = 'N'
	tupleOld = 'O' // REPLICA IDENTITY FULL: the whole old row
	tupleKey = 'K' // the columns of the replica identity; the others stand as null

	columnNull   = 'n'
	columnToast  = 'u' // unchanged TOAST: not sent
	columnText   = 't'
	columnBinary = 'b' // never asked for
)

var errShortMessage = errors.New("the message ends too early")

// cursor reads a message from its front. After a read past the end it gives zeros, and bad stays set.
type cursor struct {
	s   string
	bad bool
}

func (c *cursor) take(n int) string {
	if n < 0 || n > len(c.s) {
		c.s, c.bad = "", true
		return ""
	}
	s := c.s[:n]
	c.s = c.s[n:]
	return s
}

func (c *cursor) uint(bytes int) uint64 {
	var v uint64
	s := c.take(bytes)
	for i := 0; i < len(s); i++ {
		v = v<<8 | uint64(s[i])
	}
	return v
}

func (c *cursor) byte() byte     { return byte(c.uint(1)) }
func (c *cursor) uint16() int    { return int(c.uint(2)) }
func (c *cursor) uint32() uint32 { return uint32(c.uint(4)) }
func (c *cursor) lsn() lsn       { return lsn(c.uint(8)) }

// time is microseconds since 2000-01-01.
func (c *cursor) time() time.Time {
	const y2k = 946684800 * 1_000_000
	return time.UnixMicro(y2k + int64(c.uint(8))).UTC()
}

// text is text with a length before it.
func (c *cursor) text() string { return c.take(int(c.uint32())) }

// name is text with a zero byte behind it.
func (c *cursor) name() string {
	i := strings.IndexByte(c.s, 0)
	s := c.take(i)
	c.take(1)
	return s
}

func (c *cursor) err() error {
	if c.bad {
		return errShortMessage
	}
	return nil
}

type beginMessage struct {
	commit lsn // where the commit record begins
	at     time.Time
	xid    uint32
}

func parseBegin(c *cursor) (beginMessage, error) {
	m := beginMessage{commit: c.lsn(), at: c.time(), xid: c.uint32()}
	return m, c.err()
}

type commitMessage struct {
	end lsn // behind the commit record
	at  time.Time
}

func parseCommit(c *cursor) (commitMessage, error) {
	c.byte() // flags: none yet
	c.lsn()  // where the commit record begins: Begin said it
	m := commitMessage{end: c.lsn(), at: c.time()}
	return m, c.err()
}

type relationColumn struct {
	name     string
	oid      uint32
	modifier int32
	identity bool // part of the replica identity; under FULL every column is
}

type relationMessage struct {
	id            uint32
	schema, table string
	identity      byte // pg_class.relreplident: d, n, f or i
	columns       []relationColumn
}

func parseRelation(c *cursor) (relationMessage, error) {
	m := relationMessage{id: c.uint32(), schema: c.name(), table: c.name(), identity: c.byte()}
	if m.schema == "" { // how pgoutput writes pg_catalog
		m.schema = "pg_catalog"
	}
	n := c.uint16()
	for i := 0; i < n && !c.bad; i++ {
		m.columns = append(m.columns, relationColumn{
			identity: c.byte()&1 != 0, name: c.name(), oid: c.uint32(), modifier: int32(c.uint32()),
		})
	}
	return m, c.err()
}

type truncateMessage struct{ relations []uint32 }

func parseTruncate(c *cursor) (truncateMessage, error) {
	n := int(c.uint32())
	c.byte() // CASCADE, RESTART IDENTITY: the rows are gone either way
	var m truncateMessage
	for i := 0; i < n && !c.bad; i++ {
		m.relations = append(m.relations, c.uint32())
	}
	return m, c.err()
}

type logicalMessage struct {
	transactional bool
	at            lsn
	prefix        string
	content       string
}

func parseMessage(c *cursor) (logicalMessage, error) {
	m := logicalMessage{transactional: c.byte()&1 != 0, at: c.lsn(), prefix: c.name(), content: c.text()}
	return m, c.err()
}

// rowMessage is an insert, update or delete with its tuples not yet read.
type rowMessage struct {
	relation uint32
	rest     cursor
}

func parseRow(c *cursor) (rowMessage, error) {
	m := rowMessage{relation: c.uint32()}
	m.rest = *c
	return m, c.err()
}

// tuples calls each for the tuples that follow, with the byte that says what each is. each must read its tuple whole.
func (m rowMessage) tuples(each func(kind byte, c *cursor) error) error {
	c := m.rest
	for len(c.s) > 0 {
		kind := c.byte()
		if kind != tupleNew && kind != tupleOld && kind != tupleKey {
			return fmt.Errorf("a tuple begins with %q", kind)
		}
		if err := each(kind, &c); err != nil {
			return err
		}
	}
	return c.err()
}
