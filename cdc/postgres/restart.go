package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// Restart implements cdc.Feeder.
func (f *Feeder) Restart(ctx context.Context) (cdc.Position, error) {
	p, err := f.restart(ctx)
	if err != nil {
		return cdc.Position{}, f.explain(err)
	}
	return p, nil
}

func (f *Feeder) restart(ctx context.Context) (cdc.Position, error) {
	s, err := f.dial(ctx)
	if err != nil {
		return cdc.Position{}, err
	}
	defer s.close()
	id, err := pglogrepl.IdentifySystem(ctx, s.repl)
	if err != nil {
		return cdc.Position{}, during("asking the server who it is", err)
	}
	s.origin = origin{systemID: id.SystemID, timeline: id.Timeline}
	slot, err := findSlot(ctx, s.catalog.conn, f.cfg.Slot)
	if err != nil {
		return cdc.Position{}, err
	}
	if slot != nil {
		if slot.Plugin != "pgoutput" || slot.Database != f.cfg.Database {
			return cdc.Position{}, f.fitSlot(slot, cdc.Position{})
		}
		if err := f.dropSlot(ctx, s.catalog.conn); err != nil {
			return cdc.Position{}, err
		}
	}
	if err := f.ensurePublication(ctx, s.catalog.conn); err != nil {
		return cdc.Position{}, err
	}
	at, err := f.createSlot(ctx, s.repl)
	if err != nil {
		return cdc.Position{}, err
	}
	return s.origin.position(at), nil
}

func (f *Feeder) dropSlot(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", f.cfg.Slot)
	return during(fmt.Sprintf("dropping slot %s", f.cfg.Slot), err)
}
