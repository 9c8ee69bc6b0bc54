package mysql

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
)

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
		add(cdc.SeverityWarning, "binlog_row_metadata is "+orUnknown(v)+": rows between two ALTER TABLEs that the feeder did not see happen cannot be read",
			"SET GLOBAL binlog_row_metadata = FULL")
	}
	if v := s.vars["binlog_row_value_options"]; v != "" {
		add(cdc.SeverityWarning, "binlog_row_value_options is "+v+": JSON columns that change in part are not known whole",
			"SET GLOBAL binlog_row_value_options = ''")
	}
	if isOn(s.vars["binlog_transaction_compression"]) {
		add(cdc.SeverityWarning, "binlog_transaction_compression is ON: a compressed transaction is unpacked whole, in memory",
			"SET GLOBAL binlog_transaction_compression = OFF, where transactions are large")
	}
	if old := map[bool]int{false: 8, true: 10}[s.maria]; !s.number.atLeast(old, map[bool]int{true: 5}[s.maria]) {
		add(cdc.SeverityWarning, s.name()+" "+s.version+" is older than the versions that this program is tested with", "MySQL 8.0 and MariaDB 10.5, and later")
	}
	if !s.gtid {
		add(cdc.SeverityWarning, "gtid_mode is "+orUnknown(s.vars["gtid_mode"])+": a position holds for this one server only",
			"set gtid_mode=ON and enforce_gtid_consistency=ON")
	}
	return found
}

// checkTimes compares how long the server keeps its log, and lets commits be read before they are visible, with what the caches
// bear.
func (f *Feeder) checkTimes(s *server) (found []cdc.Finding) {
	seconds := func(name string, unit time.Duration) time.Duration {
		n, _ := strconv.ParseFloat(s.vars[name], 64)
		return time.Duration(n * float64(unit))
	}
	keeps, setting := seconds("binlog_expire_logs_seconds", time.Second), "binlog_expire_logs_seconds"
	if keeps == 0 {
		keeps, setting = seconds("expire_logs_days", 24*time.Hour), "expire_logs_days"
	}
	if keeps > 0 && keeps < f.cfg.MaxTTL {
		want := fmt.Sprint(int((f.cfg.MaxTTL + time.Hour).Seconds()))
		if setting == "expire_logs_days" {
			want = fmt.Sprint(int((f.cfg.MaxTTL + 47*time.Hour) / (24 * time.Hour)))
		}
		found = append(found, f.finding(cdc.SeverityWarning, fmt.Sprintf("the log is kept for %v and caches keep values for %v: a reader that is down for longer leaves a gap",
			keeps, f.cfg.MaxTTL), "SET GLOBAL "+setting+" = "+want+", and in the server's configuration"))
	}
	if s.gtid && !s.maria {
		return found // such commits are held back until they are visible
	}
	for _, name := range []string{"master", "source"} {
		p := "rpl_semi_sync_" + name + "_"
		waits := seconds(p+"timeout", time.Millisecond)
		if isOn(s.vars[p+"enabled"]) && s.vars[p+"wait_point"] == "AFTER_SYNC" && waits > f.cfg.Settle && f.cfg.Settle > 0 {
			found = append(found, f.finding(cdc.SeverityWarning, fmt.Sprintf("semi-synchronous commits may be read from the log %v before they are visible, and cache.settle is %v:"+
				" a reader may put the old row back after both deletes", waits, f.cfg.Settle),
				fmt.Sprintf("SET GLOBAL %stimeout = %d, or raise cache.settle above it", p, f.cfg.Settle.Milliseconds()/2)))
		}
	}
	return found
}

// checkTLS: what goes over a network is rows.
func (f *Feeder) checkTLS(addr string) []cdc.Finding {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" || net.ParseIP(host).IsLoopback() {
		return nil
	}
	switch {
	case f.cfg.TLS == nil:
		return []cdc.Finding{f.finding(cdc.SeverityWarning, "the connection to "+host+" is not encrypted: rows, and with some accounts the password, can be read on the way",
			"tls: {ca: …} for this source")}
	case f.cfg.TLS.InsecureSkipVerify:
		return []cdc.Finding{f.finding(cdc.SeverityWarning, "the certificate of "+host+" is not verified: another may answer in its stead", "tls: {ca: …} for this source")}
	}
	return nil
}

// checkFilters looks for databases that the log leaves out (C9). What sessions leave out with sql_log_bin=0 nobody can see.
func (f *Feeder) checkFilters(c *conn) (found []cdc.Finding, err error) {
	rows, err := c.first(c.server.number.endQueries())
	if err != nil || len(rows) == 0 {
		if isMyError(err) {
			err = nil // checkGrants says so
		}
		return nil, err
	}
	schemas, err := c.rows("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN (" + systemSchemas + ")")
	if err != nil {
		return nil, err
	}
	only, but := listed(rows[0]["Binlog_Do_DB"]), listed(rows[0]["Binlog_Ignore_DB"])
	for _, s := range schemas {
		name := c.server.tableID(s[0], "").Schema
		if !c.server.include.MatchSchema(name) {
			continue
		}
		switch {
		case len(only) > 0 && !only[name]:
			found = append(found, f.finding(cdc.SeverityError, "database "+name+" is not logged: binlog-do-db is "+rows[0]["Binlog_Do_DB"],
				"take binlog-do-db out of the server's configuration and restart it"))
		case but[name]:
			found = append(found, f.finding(cdc.SeverityError, "database "+name+" is not logged: binlog-ignore-db is "+rows[0]["Binlog_Ignore_DB"],
				"take binlog-ignore-db out of the server's configuration and restart it"))
		}
	}
	return found, nil
}

func listed(names string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name != "" {
			set[name] = true
		}
	}
	return set
}
