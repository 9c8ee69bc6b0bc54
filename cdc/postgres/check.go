package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// Check implements cdc.Feeder. It makes neither publication nor slot: what Run would make is no finding.
func (f *Feeder) Check(ctx context.Context) ([]cdc.Finding, error) {
	host, conn, err := f.connect(ctx)
	if err != nil {
		return nil, f.explain(err)
	}
	defer closeConn(conn.PgConn())
	c := &checker{f: f}
	if err := c.all(ctx, host, conn); err != nil {
		return nil, f.explain(err)
	}
	slices.SortStableFunc(c.found, func(a, b cdc.Finding) int { return rank(a.Severity) - rank(b.Severity) })
	return c.found, nil
}

func rank(s cdc.Severity) int {
	if s == cdc.SeverityError {
		return 0
	}
	return 1
}

type checker struct {
	f     *Feeder
	found []cdc.Finding
}

func (c *checker) add(s cdc.Severity, table, column, hint, format string, args ...any) {
	c.found = append(c.found, cdc.Finding{
		Severity: s, Source: c.f.cfg.Name, Table: table, Column: column, What: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// refused makes a finding of an error that Run would end with.
func (c *checker) refused(err error) {
	e := c.f.explain(err)
	c.add(cdc.SeverityError, "", "", e.Hint, "%v", e.Err)
}

func (c *checker) all(ctx context.Context, host string, conn *pgx.Conn) error {
	server, err := askServer(ctx, conn)
	if err != nil {
		return err
	}
	c.transport(host)
	if err := c.f.fit(server); err != nil {
		c.refused(err)
	}
	if server.Version < minVersion {
		return nil // what follows is asked in words that the server does not know
	}
	slot, err := findSlot(ctx, conn, c.f.cfg.Slot)
	if err != nil {
		return err
	}
	pub, err := findPublication(ctx, conn, c.f.cfg.Publication)
	if err != nil {
		return err
	}
	if server.WALLevel == "logical" {
		c.replication(ctx, host)
	}
	if err := c.server(ctx, conn, server, slot); err != nil {
		return err
	}
	c.slot(slot, pub)
	return c.tables(ctx, conn, server, pub)
}

// slot looks at a slot that is there.
func (c *checker) slot(slot *slotInfo, pub *publicationInfo) {
	if slot == nil {
		return
	}
	if err := c.f.fitSlot(slot); err != nil {
		c.refused(err)
		return
	}
	if slot.dead() != "" {
		c.refused(c.f.gap(cdc.Position{}, fmt.Errorf("slot %s is lost: %s", c.f.cfg.Slot, slot.dead())))
	}
	if pub == nil {
		c.refused(c.f.noPublication(cdc.Position{}))
	}
}

// replication tries whether our role may stream.
func (c *checker) replication(ctx context.Context, host string) {
	repl, err := c.f.connectReplication(ctx, host)
	if err != nil {
		c.refused(err)
		return
	}
	defer closeConn(repl)
	if _, err := pglogrepl.IdentifySystem(ctx, repl); err != nil {
		c.refused(during("asking the server who it is", err))
	}
}
