package mysql

import (
	"context"
	"fmt"
	"strings"

	"invalidator/cdc"
)

// refuse is what Run asks before it starts: a source that fails it would be read without an error and give nothing.
func (f *Feeder) refuse(s *server) error {
	for _, x := range f.checkLog(s) {
		if x.Severity == cdc.SeverityError {
			return f.fail(fmt.Errorf("%s", x.What), x.Hint, false)
		}
	}
	return nil
}

func (f *Feeder) finding(sev cdc.Severity, what, hint string) cdc.Finding {
	return cdc.Finding{Severity: sev, Source: f.cfg.Name, What: what, Hint: hint}
}

// checkLog looks at how the server logs.
func (f *Feeder) checkLog(s *server) (found []cdc.Finding) {
	add := func(sev cdc.Severity, what, hint string) { found = append(found, f.finding(sev, what, hint)) }
	if !strings.EqualFold(s.vars["log_bin"], "ON") && s.vars["log_bin"] != "1" {
		add(cdc.SeverityError, fmt.Sprintf("%s %s at %s writes no binary log", s.name(), s.version, s.addr),
			"start it with log_bin and binlog_format=ROW")
		return found
	}
	if v := s.vars["binlog_format"]; v != "ROW" {
		add(cdc.SeverityError, "binlog_format is "+v+": the log holds statements instead of rows",
			"SET GLOBAL binlog_format = ROW, set it in the server's configuration too, and let all sessions reconnect")
	}
	if v := s.vars["binlog_row_image"]; v != "FULL" {
		add(cdc.SeverityWarning, "binlog_row_image is "+v+": keys made of columns that a change leaves out are not deleted",
			"SET GLOBAL binlog_row_image = FULL")
	}
	if v := s.vars["binlog_row_metadata"]; v != "FULL" {
		add(cdc.SeverityWarning, "binlog_row_metadata is "+orNone(v)+": rows logged before an ALTER TABLE cannot be read after it",
			"SET GLOBAL binlog_row_metadata = FULL")
	}
	if !s.gtid {
		add(cdc.SeverityWarning, "gtid_mode is "+orNone(s.vars["gtid_mode"])+": a failover to another server loses the position",
			"set gtid_mode=ON and enforce_gtid_consistency=ON")
	}
	return found
}

func orNone(v string) string {
	if v == "" {
		return "not known to the server"
	}
	return v
}

// Check implements cdc.Feeder.
func (f *Feeder) Check(ctx context.Context) ([]cdc.Finding, error) {
	c, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return f.checkLog(c.server), nil
}
