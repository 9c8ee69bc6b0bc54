package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// How often one template's skips of one reason, its undecided condition, its keys in shadow and truncates of its tables are named in
// the log; every one is counted.
const (
	reportEvery = time.Minute
	shadowEvery = 10 * time.Second
)

// reporter names in the log what a template did not do, not more often than a person can read.
type reporter struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		next  map[report]time.Time // when it may be named again; bounded by what the templates of two sweeps can have
		swept time.Time
	}
}

// report is what is named once in a while: a template, and a skip's reason or one of the words below.
type report struct {
	template *mapping.Template
	what     string
}

const (
	reportUndecided = "undecided"
	reportShadow    = "shadow"
	reportFlush     = "flush"
	reportUnflushed = "unflushed"
)

// place is where a change came from.
type place struct {
	source    string
	connector cdc.Connector
	table     cdc.TableID
	partition changelog.Partition
	offset    int64
}

func newReporter(log *slog.Logger) *reporter {
	r := &reporter{log: log}
	r.mu.next = map[report]time.Time{}
	return r
}

// skip names a skip that loses a delete; a NULL loses none.
func (r *reporter) skip(s *mapping.Skip, at place) {
	if s.Reason != mapping.SkipNull && r.due(report{s.Template, string(s.Reason)}, reportEvery) {
		more := []any{"column", s.Column, "reason", string(s.Reason), "detail", s.Detail}
		if hint := at.hint(); s.Reason == mapping.SkipAbsent && hint != "" {
			more = append(more, "hint", hint)
		}
		r.tell(slog.LevelWarn, "a template gave no key", s.Template, at, more...)
	}
}

// hint is what makes a database log the columns that an image lacks.
func (at place) hint() string {
	switch at.connector {
	case cdc.Postgres:
		return fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", at.table)
	case cdc.MySQL, cdc.MariaDB:
		return "binlog_row_image = FULL, in every session, makes the log hold whole rows"
	}
	return ""
}

func (r *reporter) undecided(u *mapping.Undecided, at place) {
	if r.due(report{u.Template, reportUndecided}, reportEvery) {
		r.tell(slog.LevelWarn, "a condition could not be decided, and counts as true", u.Template, at,
			"when", u.Template.When, "image", string(u.Image), "column", u.Column, "detail", u.Detail)
	}
}

// shadow gives a sample of the keys.
func (r *reporter) shadow(k mapping.Key, at place) {
	if r.due(report{k.Template, reportShadow}, shadowEvery) {
		r.tell(slog.LevelInfo, "a key in shadow: nothing is done with it", k.Template, at, "key", sink.LoggedKey(strings.Clone(k.Text)), "action", string(k.Template.Action))
	}
}

// flushed names the pools of emptied tables that a flush was asked for.
func (r *reporter) flushed(pools []mapping.Emptied, tables []string, at place) {
	r.truncate(slog.LevelWarn, reportFlush, "a table was emptied, and nothing says which keys are stale: asked for a flush of its pools", pools, tables, at)
}

func (r *reporter) ignoredTruncate(pools []mapping.Emptied, tables []string, at place) {
	r.truncate(slog.LevelInfo, reportUnflushed, "a table was emptied, and its pools stay as they are: on_truncate is ignore", pools, tables, at)
}

func (r *reporter) truncate(level slog.Level, what, text string, pools []mapping.Emptied, tables []string, at place) {
	if len(pools) == 0 || !r.due(report{pools[0].Template, what}, reportEvery) {
		return
	}
	names := make([]string, len(pools))
	for i, e := range pools {
		names[i] = e.Pool
	}
	r.log.Log(context.Background(), level, text, "source", at.source, "tables", strings.Join(tables, ", "), "pools", strings.Join(names, ", "),
		"topic", at.partition.Topic, "partition", at.partition.Number, "offset", at.offset)
}

func (r *reporter) tell(level slog.Level, what string, t *mapping.Template, at place, more ...any) {
	r.log.With("source", at.source, "table", at.table.String(), "mapping", t.Mapping, "template", t.Text,
		"topic", at.partition.Topic, "partition", at.partition.Number, "offset", at.offset).Log(context.Background(), level, what, more...)
}

// due reports whether it may be named now, and if so notes that it was.
func (r *reporter) due(what report, every time.Duration) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.mu.next[what]) {
		return false
	}
	if now.Sub(r.mu.swept) >= reportEvery { // what a reload left behind
		maps.DeleteFunc(r.mu.next, func(_ report, next time.Time) bool { return !now.Before(next) })
		r.mu.swept = now
	}
	r.mu.next[what] = now.Add(every)
	return true
}
