package mysql

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"

	"invalidator/cdc"
)

// tracker is the place in the log up to which everything has been handed over. Exactly one of executed, domains or (both
// nil) file and offset says where to resume.
type tracker struct {
	id       string                       // of the server that is read
	executed *mysql.MysqlGTIDSet          // MySQL
	domains  map[uint32]mysql.MariadbGTID // MariaDB: the latest of each domain

	file string
	pos  uint64
}

// gtid is the transaction that is being read: it counts only when it ends.
type gtid struct {
	mysql struct {
		sid uuid.UUID
		tag mysql.Tag
		gno int64
	}
	maria mysql.MariadbGTID
}

// mysqlGTIDOf is what a GTID event of MySQL names.
func mysqlGTIDOf(ev *replication.GTIDEvent) (g gtid, err error) {
	if g.mysql.sid, err = uuid.FromBytes(ev.SID); err != nil {
		return gtid{}, fmt.Errorf("reading a GTID event: %w", err)
	}
	g.mysql.tag, g.mysql.gno = ev.Tag, ev.GNO
	return g, nil
}

// text is how SQL writes it; empty for none.
func (g *gtid) text() string {
	switch {
	case g.mysql.gno != 0 && g.mysql.tag != (mysql.Tag{}):
		return g.mysql.sid.String() + ":" + g.mysql.tag.String() + ":" + strconv.FormatInt(g.mysql.gno, 10)
	case g.mysql.gno != 0:
		return g.mysql.sid.String() + ":" + strconv.FormatInt(g.mysql.gno, 10)
	}
	return g.maria.String()
}

// ended moves the place behind a transaction whose last event ends at pos; 0 where the log does not say.
func (t *tracker) ended(g *gtid, pos uint64) {
	if t.executed != nil && g.mysql.gno != 0 {
		t.executed.AddGTIDWithTag(g.mysql.sid, g.mysql.tag, g.mysql.gno)
	}
	if t.domains != nil && g.maria != (mysql.MariadbGTID{}) {
		t.domains[g.maria.DomainID] = g.maria
	}
	if pos > 0 {
		t.pos = pos
	}
}

// passed moves the place behind a transaction that is kept for later. A set of MySQL goes on without it.
func (t *tracker) passed(g *gtid, pos uint64) {
	later := *g
	later.mysql.gno = 0
	t.ended(&later, pos)
}

// settled adds a transaction that was passed to a set of MySQL.
func (t *tracker) settled(g *gtid) {
	if t.executed != nil && g.mysql.gno != 0 {
		t.executed.AddGTIDWithTag(g.mysql.sid, g.mysql.tag, g.mysql.gno)
	}
}

// clone copies a place, but for a set of MySQL.
func (t *tracker) clone() *tracker {
	c := *t
	c.executed, c.domains = nil, maps.Clone(t.domains)
	return &c
}

// cloneAll copies a place.
func (t *tracker) cloneAll() *tracker {
	c := t.clone()
	if t.executed != nil {
		c.executed = t.executed.Clone().(*mysql.MysqlGTIDSet)
	}
	return c
}

// String is the place as text: the GTID set, or file:offset.
func (t *tracker) String() string {
	switch {
	case t.executed != nil:
		return t.executed.String()
	case t.domains != nil:
		return domainsText(t.domains)
	}
	return fmt.Sprintf("%s:%d", t.file, t.pos)
}

func domainsText(domains map[uint32]mysql.MariadbGTID) string {
	var b strings.Builder
	for i, d := range slices.Sorted(maps.Keys(domains)) {
		if i > 0 {
			b.WriteByte(',')
		}
		g := domains[d]
		b.WriteString(g.String())
	}
	return b.String()
}

// position is the place as it is saved. An empty GTID set leaves the file out too, which is how it is told from a server
// that has no GTIDs.
func (t *tracker) position() cdc.Position {
	p := cdc.Position{ServerUUID: t.id, File: t.file, Pos: t.pos}
	if t.executed == nil && t.domains == nil {
		return p
	}
	if p.GTIDSet = t.String(); p.GTIDSet == "" {
		p.File, p.Pos = "", 0
	}
	return p
}

// parsePosition reads a saved position for a server, and refuses one of another kind.
func parsePosition(s *server, p cdc.Position) (*tracker, error) {
	t := &tracker{id: s.id, file: p.File, pos: p.Pos}
	if p.GTIDSet != "" && p.ServerUUID != s.id { // a place in another server's files
		t.file, t.pos = "", 0
	}
	if p.LSN != "" {
		return nil, errors.New("the saved position is one of Postgres")
	}
	if p.GTIDSet == "" && p.File != "" {
		if s.maria {
			return nil, errors.New("the saved position is one of a MySQL server without GTIDs, but the server is MariaDB")
		}
		return t, nil
	}
	if s.maria {
		return t, t.parseDomains(p.GTIDSet)
	}
	if !s.gtid {
		return nil, fmt.Errorf("the saved position is a GTID set, but the server has gtid_mode=%s", s.vars["gtid_mode"])
	}
	set, err := mysql.ParseMysqlGTIDSet(p.GTIDSet)
	if err != nil {
		return nil, fmt.Errorf("reading the saved position %q as a GTID set of MySQL: %w", p.GTIDSet, plain(err))
	}
	t.executed = set.(*mysql.MysqlGTIDSet)
	return t, nil
}

func (t *tracker) parseDomains(text string) error {
	t.domains = map[uint32]mysql.MariadbGTID{}
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		g, err := mysql.ParseMariadbGTID(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("reading the saved position %q as GTIDs of MariaDB: %w", text, plain(err))
		}
		t.domains[g.DomainID] = *g
	}
	return nil
}

// presentEnd asks where the server's log ends now: whatever commits from here on comes after it.
func presentEnd(c *conn) (*tracker, error) {
	end, err := endOfLog(c) // before the set: what lies between the two is read at most, and not skipped
	if err != nil {
		return nil, err
	}
	t := &tracker{id: c.server.id, file: end.file, pos: end.pos}
	if c.server.maria {
		rows, err := c.rows("SELECT @@GLOBAL.gtid_binlog_pos")
		if err != nil {
			return nil, err
		}
		return t, t.parseDomains(rows[0][0])
	}
	if c.server.gtid {
		rows, err := c.rows("SELECT @@GLOBAL.gtid_executed")
		if err != nil {
			return nil, err
		}
		set, err := mysql.ParseMysqlGTIDSet(strings.ReplaceAll(rows[0][0], "\n", ""))
		if err != nil {
			return nil, err
		}
		t.executed = set.(*mysql.MysqlGTIDSet)
		return t, nil
	}
	return t, nil
}
