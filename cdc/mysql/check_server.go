package mysql

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
)

// checkRole looks for a replica that keeps what it replicates to itself, or does not get all.
func (f *Feeder) checkRole(c *conn) (found []cdc.Finding, err error) {
	role, err := c.role()
	if err != nil {
		return nil, err
	}
	if !role.known {
		found = append(found, f.finding(cdc.SeverityWarning, f.cfg.User+" may not ask whether this is a replica: after a failover that is guessed", f.grantHintFor(c.server)))
	}
	if role.replica && !c.server.logsReplicated() {
		found = append(found, f.finding(cdc.SeverityError, "this is a replica that does not log what it replicates", logReplicatedHint))
	}
	if role.filters != "" {
		found = append(found, f.finding(cdc.SeverityWarning, "this replica does not get all: "+role.filters, "feed from a server without filters for the included tables"))
	}
	return found, nil
}

// checkGrants looks at the account's own privileges; what it has by a role is not seen.
func (f *Feeder) checkGrants(c *conn) (found []cdc.Finding, err error) {
	rows, err := c.rows("SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	has := func(names ...string) bool {
		for _, r := range rows {
			what, where, _ := strings.Cut(r[0], " ON ")
			for _, n := range append(names, "ALL PRIVILEGES") {
				if strings.Contains(what, n) && (strings.HasPrefix(where, "*.*") || n == "SELECT") {
					return true
				}
			}
		}
		return false
	}
	if !has("REPLICATION SLAVE", "REPLICATION REPLICA") {
		found = append(found, f.finding(cdc.SeverityError, f.cfg.User+" may not read the binary log", f.grantHintFor(c.server)))
	}
	if !has("REPLICATION CLIENT", "BINLOG MONITOR") {
		found = append(found, f.finding(cdc.SeverityWarning, f.cfg.User+" may not ask where the binary log ends", f.grantHintFor(c.server)))
	}
	if !has("SELECT") {
		found = append(found, f.finding(cdc.SeverityWarning, f.cfg.User+" may not see the tables' definitions", f.grantHintFor(c.server)))
	}
	return found, nil
}

// checkReaders looks for another reader, or server, under our number (E11).
func (f *Feeder) checkReaders(c *conn) (found []cdc.Finding, err error) {
	hint := "give this source a server_id that no server and no other reader has"
	if c.server.vars["server_id"] == fmt.Sprint(f.cfg.ServerID) {
		return append(found, f.finding(cdc.SeverityError, fmt.Sprintf("server_id %d is the server's own", f.cfg.ServerID), hint)), nil
	}
	rows, err := c.first(c.server.number.readerQueries())
	if err != nil {
		if isMyError(err) {
			err = nil
		}
		return nil, err
	}
	host, _ := os.Hostname()
	for _, r := range rows {
		if r["Server_id"] != fmt.Sprint(f.cfg.ServerID) {
			continue
		}
		who := r["Slave_UUID"] + r["Replica_UUID"]
		if who != "" && who != readerUUID(f.cfg.ServerID) || who == "" && r["Host"] != shortHost(host) {
			found = append(found, f.finding(cdc.SeverityError, strings.TrimSpace(fmt.Sprintf("another reader uses server_id %d: %s %s", f.cfg.ServerID, r["Host"], who)), hint))
		}
	}
	return found, nil
}

// maxSkew is how far two clocks may differ before it is said. The age of changes is told by the server's.
const maxSkew = time.Second

func (f *Feeder) checkClock(c *conn) ([]cdc.Finding, error) {
	before := time.Now()
	rows, err := c.rows("SELECT UNIX_TIMESTAMP(NOW(6))")
	if err != nil {
		return nil, err
	}
	here := before.Add(time.Since(before) / 2)
	seconds, err := strconv.ParseFloat(rows[0][0], 64)
	if err != nil {
		return nil, fmt.Errorf("reading the server's clock: %w", err)
	}
	skew := time.UnixMicro(int64(seconds * 1e6)).Sub(here).Round(10 * time.Millisecond)
	if skew.Abs() <= maxSkew {
		return nil, nil
	}
	return []cdc.Finding{f.finding(cdc.SeverityWarning, fmt.Sprintf("its clock differs from this host's by %v: ages, and second deletes, are reckoned from its commit times", skew),
		"keep both hosts' clocks by NTP")}, nil
}

// checkXA looks for transactions that stay prepared for a second. An account may not always ask.
func (f *Feeder) checkXA(c *conn) ([]cdc.Finding, error) {
	before, err := c.preparedXA()
	if err != nil || len(before) == 0 {
		return nil, err
	}
	if _, err := c.rows("SELECT SLEEP(1)"); err != nil {
		return nil, err
	}
	after, err := c.preparedXA()
	if err != nil {
		return nil, err
	}
	var stay []string
	for xid := range before {
		if after[xid] {
			stay = append(stay, xid)
		}
	}
	if len(stay) == 0 {
		return nil, nil
	}
	return []cdc.Finding{f.finding(cdc.SeverityWarning, fmt.Sprintf("%d XA transactions stay prepared: they hold locks, and where GTIDs are not MySQL's the saved position with them", len(stay)),
		"XA RECOVER; XA COMMIT or XA ROLLBACK what nobody will end")}, nil
}

func (c *conn) preparedXA() (map[string]bool, error) {
	rows, err := c.rows("XA RECOVER CONVERT XID")
	if err != nil && isMyError(err) {
		rows, err = c.rows("XA RECOVER")
	}
	if err != nil {
		if isMyError(err) {
			err = nil
		}
		return nil, err
	}
	found := map[string]bool{}
	for _, r := range rows {
		found[strings.Join(r, " ")] = true
	}
	return found, nil
}
