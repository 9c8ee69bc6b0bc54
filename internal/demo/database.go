package demo

import (
	"context"
	"fmt"
	"time"
)

// database is one database with the demo's tables, as a writer and a reader of it see it.
type database interface {
	// name is mysql, mariadb or postgres.
	name() string
	// about says in a few words which server it is; empty where the stage's introduction does.
	about() string
	// sourceName is what the feeder and the workers call it.
	sourceName() string
	// source is its entry under sources in invalidator.yaml.
	source() string
	// exec carries out the writes in one transaction. sent is the moment just before the statement that commits was sent.
	exec(ctx context.Context, writes ...write) (sent time.Time, err error)
	// rows are those of a table with from <= id <= to, in the order of their ids.
	rows(ctx context.Context, t *table, from, to uint64) ([]row, error)
	// remove takes away everything that was made there. The feeder has stopped.
	remove(ctx context.Context) error
}

func selectRows(t *table, from, to uint64) string {
	names := ""
	for i, c := range t.columns {
		if i > 0 {
			names += ", "
		}
		names += c.name
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE id BETWEEN %d AND %d ORDER BY id", names, t.name, from, to)
}
