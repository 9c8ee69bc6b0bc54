package postgres

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"invalidator/cdc"
)

// lsn is a place in the server's log.
type lsn = pglogrepl.LSN

// origin is the log that positions are places in.
type origin struct {
	systemID string
	timeline int32
}

func (o origin) position(at lsn) cdc.Position {
	return cdc.Position{LSN: at.String(), SystemID: o.systemID, Timeline: o.timeline}
}

func parseLSN(text string) (lsn, error) {
	at, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0, fmt.Errorf("reading log position %q: %w", text, err)
	}
	return at, nil
}
