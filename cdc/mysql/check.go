package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"invalidator/cdc"
)

// Check implements cdc.Feeder.
func (f *Feeder) Check(ctx context.Context) ([]cdc.Finding, error) {
	c, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	found := f.checkLog(c.server)
	for _, part := range []func(*conn) ([]cdc.Finding, error){f.checkReplica, f.checkGrants, f.checkTables} {
		more, err := part(c)
		if err != nil {
			return nil, f.classify(fmt.Errorf("checking %s: %w", c.server.addr, err), cdc.Position{})
		}
		found = append(found, more...)
	}
	slices.SortStableFunc(found, func(a, b cdc.Finding) int { // "error" before "warning"
		return strings.Compare(string(a.Severity), string(b.Severity))
	})
	return found, nil
}

// refuse is what Run asks before it starts: a source that fails it would be read without an error and give nothing. What the
// log will say only in part is a warning.
func (f *Feeder) refuse(s *server) error {
	found := f.checkLog(s)
	for _, x := range found {
		if x.Severity == cdc.SeverityError {
			return f.fail(errors.New(x.What), x.Hint, false)
		}
	}
	for _, x := range found {
		f.log.Warn(x.What, "hint", x.Hint)
	}
	return nil
}

func (f *Feeder) finding(sev cdc.Severity, what, hint string) cdc.Finding {
	return cdc.Finding{Severity: sev, Source: f.cfg.Name, What: what, Hint: hint}
}

// checkLog looks at how the server logs.
func (f *Feeder) checkLog(s *server) (found []cdc.Finding) {
	add := func(sev cdc.Severity, what, hint string) { found = append(found, f.finding(sev, what, hint)) }
	if !isOn(s.vars["log_bin"]) {
		add(cdc.SeverityError, fmt.Sprintf("%s %s at %s writes no binary log", s.name(), s.version, s.addr),
			"start it with log_bin and binlog_format=ROW")
		return found
	}
	if v := s.vars["binlog_format"]; v != "ROW" {
		add(cdc.SeverityError, "binlog_format is "+orUnknown(v)+": the log holds statements instead of rows",
			"SET GLOBAL binlog_format = ROW, set it in the server's configuration too, and let all sessions reconnect")
	}
	if v := s.vars["binlog_row_image"]; v != "FULL" {
		add(cdc.SeverityWarning, "binlog_row_image is "+orUnknown(v)+": keys made of columns that a change leaves out are not deleted",
			"SET GLOBAL binlog_row_image = FULL, and let all sessions reconnect")
	}
	if v := s.vars["binlog_row_metadata"]; v != "FULL" {
		add(cdc.SeverityWarning, "binlog_row_metadata is "+orUnknown(v)+": rows logged before an ALTER TABLE cannot be read after it",
			"SET GLOBAL binlog_row_metadata = FULL")
	}
	if v := s.vars["binlog_row_value_options"]; v != "" {
		add(cdc.SeverityWarning, "binlog_row_value_options is "+v+": JSON columns that change in part are not known whole",
			"SET GLOBAL binlog_row_value_options = ''")
	}
	if !s.gtid {
		add(cdc.SeverityWarning, "gtid_mode is "+orUnknown(s.vars["gtid_mode"])+": a position holds for this one server only",
			"set gtid_mode=ON and enforce_gtid_consistency=ON")
	}
	return found
}

func isOn(v string) bool { return strings.EqualFold(v, "ON") || v == "1" }

func orUnknown(v string) string {
	if v == "" {
		return "not known to the server"
	}
	return v
}

// checkReplica looks for a replica that keeps what it replicates to itself.
func (f *Feeder) checkReplica(c *conn) ([]cdc.Finding, error) {
	v, hint := c.server.vars["log_replica_updates"], "set log_replica_updates=ON and restart it, or feed from the primary"
	if v == "" {
		v, hint = c.server.vars["log_slave_updates"], "set log_slave_updates=ON and restart it, or feed from the primary"
	}
	if isOn(v) {
		return nil, nil
	}
	rows, err := c.rows("SHOW REPLICA STATUS")
	if err != nil {
		rows, err = c.rows("SHOW SLAVE STATUS")
	}
	switch {
	case err != nil && c.server.maria: // MariaDB's ordinary state, and a privilege of its own to ask
		return nil, nil
	case err != nil:
		return []cdc.Finding{f.finding(cdc.SeverityWarning, "log_replica_updates is OFF, and whether this is a replica may not be asked: "+
			"a replica's log would hold nothing", hint)}, nil
	case len(rows) > 0:
		return []cdc.Finding{f.finding(cdc.SeverityError, "this is a replica that does not log what it replicates", hint)}, nil
	}
	return nil, nil
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
		found = append(found, f.finding(cdc.SeverityError, f.cfg.User+" may not read the binary log", f.grantHint()))
	}
	if !has("REPLICATION CLIENT", "BINLOG MONITOR") {
		found = append(found, f.finding(cdc.SeverityWarning, f.cfg.User+" may not ask where the binary log ends", f.grantHint()))
	}
	if !has("SELECT") {
		found = append(found, f.finding(cdc.SeverityWarning, f.cfg.User+" may not see the tables' definitions", f.grantHint()))
	}
	return found, nil
}

// checkTables looks at the included tables as they are now.
func (f *Feeder) checkTables(c *conn) (found []cdc.Finding, err error) {
	rows, err := c.rows("SELECT t.TABLE_SCHEMA, t.TABLE_NAME, EXISTS (SELECT 1 FROM information_schema.STATISTICS k" +
		" WHERE k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME AND k.INDEX_NAME = 'PRIMARY')" +
		" FROM information_schema.TABLES t WHERE t.TABLE_TYPE = 'BASE TABLE' ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	any := false
	for _, r := range rows {
		if !f.cfg.Include.Match(r[0], r[1]) {
			continue
		}
		any = true
		if r[2] == "0" {
			x := f.finding(cdc.SeverityWarning, "it has no primary key: changes of one row may go to different partitions",
				"ALTER TABLE "+r[0]+"."+r[1]+" ADD PRIMARY KEY (…)")
			x.Table = r[0] + "." + r[1]
			found = append(found, x)
		}
	}
	if !any {
		found = append(found, f.finding(cdc.SeverityWarning, "no table matches include, as far as "+f.cfg.User+" may see",
			"compare include with SHOW TABLES; names are compared by case"))
	}
	rows, err = c.rows("SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS" +
		" WHERE CHARACTER_SET_NAME IS NOT NULL AND CHARACTER_SET_NAME NOT IN (" + knownCharsets() + ") ORDER BY 1, 2, ORDINAL_POSITION")
	for _, r := range rows {
		if f.cfg.Include.Match(r[0], r[1]) {
			x := f.finding(cdc.SeverityWarning, "its charset "+r[3]+" cannot be read: keys made of it are not deleted",
				"convert the column to utf8mb4")
			x.Table, x.Column = r[0]+"."+r[1], r[2]
			found = append(found, x)
		}
	}
	return found, err
}

func knownCharsets() string {
	names := []string{quote(binaryCharset)}
	for name := range charsets {
		names = append(names, quote(name))
	}
	return strings.Join(names, ",")
}
