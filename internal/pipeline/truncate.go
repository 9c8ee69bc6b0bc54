package pipeline

import (
	"context"
	"fmt"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// Flusher asks that every key of a pool be deleted.
type Flusher interface {
	// Flush writes r, and returns nil when every in-sync replica has it. It is called from partitions' goroutines, and may
	// block until ctx ends. An error, ctx's included, leaves open whether r was written. Writing it twice is harmless: its ID is
	// the same, also from the next owner of the partition after a crash.
	Flush(ctx context.Context, r FlushRequest) error
}

// FlushRequest is a flush of a pool that a truncate makes necessary.
type FlushRequest struct {
	ID        string // follows from the record and the pool
	Pool      string
	Source    string
	Tables    []string // that were emptied: schema.table, or schema.* for all of a schema
	Partition changelog.Partition
	Offset    int64     // of the record there
	Committed time.Time // in the database; zero where the source does not say
}

// flushTry bounds one try to write a request, so that a broker that is away is told.
const flushTry = 10 * time.Second

// What was done about a pool of an emptied table: the values of a metric's label.
const (
	truncateFlush  = "flush"
	truncateIgnore = "ignore"
)

// emptied answers a truncate: a request for each pool that has to be flushed. It returns when all are written; before that the
// record is not passed.
func (p *partition) emptied(ctx context.Context, r *changelog.Record, row *cdc.RowChange) error {
	if row.Op != cdc.Truncate {
		return nil
	}
	at := place{p.source.Name, row.Connector, row.TableID, p.id, r.Offset}
	tables := row.Emptied()
	for _, e := range p.result.Unflushed {
		p.w.metrics.truncates.WithLabelValues(e.Pool, truncateIgnore).Inc()
	}
	p.w.reports.ignoredTruncate(p.result.Unflushed, tables, at)
	for _, e := range p.result.Flush {
		q := FlushRequest{
			ID: flushID(p.id, r, e.Pool), Pool: e.Pool, Source: row.Source, Tables: tables,
			Partition: p.id, Offset: r.Offset, Committed: row.CommitTime,
		}
		err := p.insist(ctx, r.Offset, "asking for a flush of pool "+e.Pool, func() error {
			ctx, cancel := context.WithTimeout(ctx, flushTry)
			defer cancel()
			return p.w.opts.Flusher.Flush(ctx, q)
		})
		if err != nil {
			return err
		}
		p.w.metrics.truncates.WithLabelValues(e.Pool, truncateFlush).Inc()
	}
	p.w.reports.flushed(p.result.Flush, tables, at)
	return nil
}

// flushID names a request. The record's time is in it since a topic that is removed and made again has the same offsets: of two
// requests of one id the second is none.
func flushID(p changelog.Partition, r *changelog.Record, pool string) string {
	return fmt.Sprintf("truncate/%s/%d/%d/%d/%s", p.Topic, p.Number, r.Offset, r.Time.UnixMilli(), pool)
}
