package postgres

import (
	"context"

	"invalidator/cdc"
)

// Restart implements cdc.Feeder. It drops the source's slot, whatever state that is in, and makes it anew behind the
// publication: the position is the new slot's consistent point. A crash in between leaves no slot, or one that stands
// beyond the saved position: the next Run finds the gap again, and Restart ends it.
//
// The slot is dropped only where it is of our plugin and database and nobody but us reads it. What other slots need stays.
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
	slot, err := f.claim(ctx, s.conn)
	if err != nil {
		return cdc.Position{}, err
	}
	if err := f.ensurePublication(ctx, s); err != nil { // first: without it nothing is dropped
		return cdc.Position{}, err
	}
	if slot != nil {
		if err := f.dropSlot(ctx, s.conn); err != nil {
			return cdc.Position{}, err
		}
	}
	at, err := f.createSlot(ctx, s)
	if err != nil {
		return cdc.Position{}, err
	}
	f.handed.Store(nil) // the server may be an older one than it was
	return s.origin.position(at), nil
}
