package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"invalidator/cdc"
)

// Check implements cdc.Feeder. Every host is asked how it logs; the tables are those of the first that answers.
func (f *Feeder) Check(ctx context.Context) ([]cdc.Finding, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var found []cdc.Finding
	var first *conn
	var primaries []string
	for _, addr := range f.cfg.Hosts {
		c, err := f.connectTo(ctx, addr)
		if err != nil {
			se, ok := errors.AsType[*cdc.SourceError](err)
			if !ok || len(f.cfg.Hosts) == 1 {
				return nil, err
			}
			found = append(found, f.finding(cdc.SeverityWarning, "it cannot be read: "+se.Err.Error(), se.Hint))
			continue
		}
		defer c.close()
		more, err := f.checkHost(c)
		if err != nil {
			return nil, f.classify(fmt.Errorf("checking %s: %w", addr, err), cdc.Position{})
		}
		if role, err := c.role(); err == nil && role.known && !role.replica && !c.server.clustered() && !isOn(c.server.vars["read_only"]) {
			primaries = append(primaries, addr)
		}
		if first == nil {
			first = c
		} else if first.server.maria != c.server.maria {
			more = append(more, f.finding(cdc.SeverityError, fmt.Sprintf("%s is %s and %s is %s: positions of one are no use at the other",
				first.server.addr, first.server.name(), addr, c.server.name()), "give each kind of server a source of its own"))
		}
		if len(f.cfg.Hosts) > 1 {
			for i := range more {
				more[i].What = addr + ": " + more[i].What
			}
		}
		found = append(found, more...)
	}
	if first == nil {
		_, err := f.connect(ctx)
		return nil, err
	}
	if len(primaries) > 1 {
		found = append(found, f.finding(cdc.SeverityError, strings.Join(primaries, " and ")+" may all be written and replicate from nobody: what is written to those that are not read is not seen",
			"take the servers that are no longer used out of hosts, or make them replicas"))
	}
	more, err := f.checkTables(first)
	if err != nil {
		return nil, f.classify(fmt.Errorf("checking the tables of %s: %w", first.server.addr, err), cdc.Position{})
	}
	found = append(found, more...)
	slices.SortStableFunc(found, func(a, b cdc.Finding) int { // "error" before "warning"
		return strings.Compare(string(a.Severity), string(b.Severity))
	})
	return found, nil
}

// checkHost looks at one server.
func (f *Feeder) checkHost(c *conn) (found []cdc.Finding, err error) {
	found = append(f.checkLog(c.server), f.checkTimes(c.server)...)
	found = append(found, f.checkTLS(c.server.addr)...)
	for _, part := range []func(*conn) ([]cdc.Finding, error){f.checkRole, f.checkGrants, f.checkFilters, f.checkReaders, f.checkClock, f.checkXA} {
		more, err := part(c)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
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

func isOn(v string) bool { return strings.EqualFold(v, "ON") || v == "1" }

func orUnknown(v string) string {
	if v == "" {
		return "not known to the server"
	}
	return v
}
