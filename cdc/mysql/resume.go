package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// compareSets judges a MySQL server by a GTID set.
func (f *Feeder) compareSets(c *conn, j *judged, role role, from cdc.Position) error {
	set := quote(from.GTIDSet)
	rows, err := c.rows("SELECT GTID_SUBTRACT(" + set + ", @@GLOBAL.gtid_executed), GTID_SUBTRACT(@@GLOBAL.gtid_purged, " + set + "), @@GLOBAL.gtid_executed")
	if err != nil {
		return err
	}
	missing, purged := oneLine(rows[0][0]), oneLine(rows[0][1])
	if missing != "" {
		wait := fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %d)", set, int(replicaPatience.Seconds()))
		if err := f.lacks(c, j, role, from, missing, wait, undoneBut(oneLine(rows[0][2]))); err != nil || j.verdict != serves {
			return err
		}
	}
	if purged != "" {
		j.verdict = gapHere
		j.err = f.gap(from, fmt.Errorf("%s has purged %s, which was not read", c.server.addr, purged))
	}
	return nil
}

func oneLine(set string) string { return strings.ReplaceAll(set, "\n", "") }

// undoneBut tells the changes of transactions that are not in a set. What was handed over and not saved before a crash is among them,
// and in no position.
func undoneBut(executed string) func(*cdc.RowChange) bool {
	set, err := mysql.ParseMysqlGTIDSet(executed)
	if err != nil {
		return func(*cdc.RowChange) bool { return true } // rather one too many
	}
	return func(c *cdc.RowChange) bool {
		one, err := mysql.ParseMysqlGTIDSet(c.Tx)
		return err != nil || c.Tx == "" || !set.Contain(one)
	}
}

// serverState is which transactions a MariaDB server has.
const serverState = "SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos"

// compareDomains judges a MariaDB server: whether it has our latest transaction of each domain. Whether its log still holds what
// follows, it says when a dump begins.
func (f *Feeder) compareDomains(c *conn, j *judged, role role, from cdc.Position) error {
	rows, err := c.rows(serverState)
	if err != nil {
		return err
	}
	theirs, err := parseState(rows[0][0] + "," + rows[0][1])
	if err != nil {
		return err
	}
	var missing []string
	for _, g := range j.track.domains {
		if theirs[origin{g.DomainID, g.ServerID}] < g.SequenceNumber {
			missing = append(missing, g.String())
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		wait := fmt.Sprintf("SELECT MASTER_GTID_WAIT(%s, %d)", quote(domainsText(j.track.domains)), int(replicaPatience.Seconds()))
		return f.lacks(c, j, role, from, strings.Join(missing, ","), wait, undoneButState(theirs))
	}
	return nil
}

// origin is a server's part of a domain of MariaDB. Sequence numbers rise in it.
type origin struct{ domain, server uint32 }

func parseState(text string) (map[origin]uint64, error) {
	state := map[origin]uint64{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		g, err := mysql.ParseMariadbGTID(part)
		if err != nil {
			return nil, plain(err)
		}
		at := origin{g.DomainID, g.ServerID}
		state[at] = max(state[at], g.SequenceNumber)
	}
	return state, nil
}

// undoneButState tells the changes of transactions that a server does not have.
func undoneButState(theirs map[origin]uint64) func(*cdc.RowChange) bool {
	return func(c *cdc.RowChange) bool {
		g, err := mysql.ParseMariadbGTID(c.Tx)
		return err != nil || c.Tx == "" || g.SequenceNumber > theirs[origin{g.DomainID, g.ServerID}]
	}
}

// Undone implements cdc.Witness.
func (f *Feeder) Undone(ctx context.Context) (func(*cdc.RowChange) bool, error) {
	now := f.current.Load()
	if now == nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := f.connectTo(ctx, now.addr)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ask := "SELECT @@GLOBAL.gtid_executed"
	switch {
	case c.server.maria:
		ask = serverState
	case !c.server.gtid:
		return nil, nil // its positions are good for this server alone
	}
	rows, err := c.rows(ask)
	if err != nil {
		return nil, f.classify(fmt.Errorf("asking %s which transactions it has: %w", now.addr, err), cdc.Position{})
	}
	if !c.server.maria {
		return undoneBut(oneLine(rows[0][0])), nil
	}
	theirs, err := parseState(rows[0][0] + "," + rows[0][1])
	if err != nil {
		return nil, f.fail(fmt.Errorf("asking %s which transactions it has: %w", now.addr, err), "", true)
	}
	return undoneButState(theirs), nil
}

// compareFiles judges a server without GTIDs, which is the one that was read.
func (f *Feeder) compareFiles(c *conn, j *judged, from cdc.Position) error {
	logs, err := c.rows("SHOW BINARY LOGS")
	if err != nil {
		return err
	}
	for _, l := range logs {
		if l[0] == from.File {
			return nil
		}
	}
	j.verdict = gapSure
	j.err = f.gap(from, fmt.Errorf("%s has purged %s, which was not read to its end", c.server.addr, from.File))
	return nil
}

// begunAnew looks whether the place up to which a log was read is one in the log that the server has now: RESET MASTER uses file
// names, and GTIDs, again. It gives the reason why not; empty where the place is good, or has been purged since. torn: it may be
// the same log, whose end was lost with the machine, for the server has begun another file since.
func (c *conn) begunAnew(p place) (why string, torn bool, err error) {
	logs, err := c.rows("SHOW BINARY LOGS")
	if err != nil {
		if isMyError(err) {
			return "", false, nil // it may not be asked; the dump tells the worst of it
		}
		return "", false, err
	}
	if len(logs) == 0 {
		return "", false, nil
	}
	last := logs[len(logs)-1][0]
	if fileNumber(last) < fileNumber(p.file) {
		return fmt.Sprintf("it was read up to %s, and ends with %s", p.file, last), false, nil
	}
	for _, l := range logs {
		if l[0] != p.file {
			continue
		}
		size, err := strconv.ParseUint(l[1], 10, 64)
		if err != nil {
			return "", false, err
		}
		if size < p.pos {
			return fmt.Sprintf("%s was read up to %d, and has %d bytes", p.file, p.pos, size), last != p.file, nil
		}
		if size == p.pos || p.pos <= 4 {
			return "", false, nil
		}
		why, err := c.beginsGroup(p)
		return why, false, err
	}
	return "", false, nil
}

// beginsGroup looks whether something that may follow a transaction begins at a place.
func (c *conn) beginsGroup(p place) (string, error) {
	rows, err := c.rows(fmt.Sprintf("SHOW BINLOG EVENTS IN %s FROM %d LIMIT 1", quote(p.file), p.pos))
	if err != nil && !isMyError(err) {
		return "", err
	}
	if err != nil || len(rows) == 0 {
		return fmt.Sprintf("no event begins at %s:%d", p.file, p.pos), nil
	}
	switch kind := rows[0][2]; strings.ToLower(kind) {
	case "write_rows", "update_rows", "delete_rows", "write_rows_v1", "update_rows_v1", "delete_rows_v1", "table_map", "xid", "xa_prepare",
		"annotate_rows", "rows_query", "transaction_payload":
		return fmt.Sprintf("at %s:%d is the middle of a transaction (%s)", p.file, p.pos, kind), nil
	}
	return "", nil
}

// Lag implements cdc.Lagger: it asks how many bytes of log lie between a place that was handed over and the log's end. The error is for a place that has no
// file (it was never read), or that is another server's.
func (f *Feeder) Lag(ctx context.Context, at cdc.Position) (cdc.Lag, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, addr := range f.cfg.Hosts {
		c, err := f.connectTo(ctx, addr)
		if err != nil || c.server.id != at.ServerUUID {
			if err == nil {
				c.close()
			}
			continue
		}
		defer c.close()
		logs, err := c.rows("SHOW BINARY LOGS")
		if err != nil {
			return cdc.Lag{}, f.classify(fmt.Errorf("asking %s for the size of its log: %w", addr, err), at)
		}
		n, err := bytesBehind(logs, place{at.File, at.Pos})
		return cdc.Lag{Bytes: n, Safe: -1}, err
	}
	return cdc.Lag{}, f.fail(errors.New("the server that the position is of does not answer"), "", true)
}

// bytesBehind adds up what lies behind a place, from names and sizes of log files.
func bytesBehind(logs [][]string, p place) (lag int64, err error) {
	if p.file == "" {
		return 0, errors.New("the position names no place in a file")
	}
	for _, l := range logs {
		size, err := strconv.ParseInt(l[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the size of %s: %w", l[0], err)
		}
		switch n := fileNumber(l[0]); {
		case n == fileNumber(p.file):
			lag += max(0, size-int64(p.pos))
		case n > fileNumber(p.file):
			lag += size
		}
	}
	return lag, nil
}
