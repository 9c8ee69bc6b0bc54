package pipeline

import (
	"log/slog"
	"sync"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
)

// skipReportEvery is how often one template's skips of one reason are named in the log; every one is counted.
const skipReportEvery = time.Minute

// skipReporter names the skips that lose a delete (a NULL loses none), not more often than a person can read.
type skipReporter struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		last map[skipKind]time.Time // bounded by templates times reasons
	}
}

type skipKind struct {
	template *mapping.Template
	reason   mapping.SkipReason
}

func newSkipReporter(log *slog.Logger) *skipReporter {
	r := &skipReporter{log: log}
	r.mu.last = map[skipKind]time.Time{}
	return r
}

func (r *skipReporter) report(source string, t cdc.TableID, s *mapping.Skip, p changelog.Partition, offset int64) {
	if s.Reason == mapping.SkipNull {
		return
	}
	kind, now := skipKind{s.Template, s.Reason}, time.Now()
	r.mu.Lock()
	due := now.Sub(r.mu.last[kind]) >= skipReportEvery
	if due {
		r.mu.last[kind] = now
	}
	r.mu.Unlock()
	if due {
		r.log.Warn("a template gave no key", "source", source, "table", t.String(), "column", s.Column, "mapping", s.Template.Mapping,
			"template", s.Template.Text, "reason", string(s.Reason), "detail", s.Detail, "topic", p.Topic, "partition", p.Number, "offset", offset)
	}
}
