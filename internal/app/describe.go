package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/config"
	"invalidator/mapping"
)

// CheckTables asks the configured databases about the tables that the mappings name, and says what of the mappings cannot work
// there. A source that cannot be asked is a finding too, and what it holds is then not known.
func CheckTables(ctx context.Context, c *config.Config, set *mapping.Set, log *slog.Logger) ([]mapping.Problem, []Finding) {
	patterns, err := cdc.NewInclude(set.Patterns())
	if err != nil {
		return nil, failed("mappings", err)
	}
	var sources []mapping.LiveSource
	var findings []Finding
	for _, s := range c.Sources {
		live := mapping.LiveSource{Name: s.Name, Unknown: s.Topics != nil,
			Unwrapped: s.Topics != nil && envelope.Format(s.Topics.Format) == envelope.Unwrapped}
		if s.Topics == nil {
			if live.Include, live.Tables, err = describeSource(ctx, s, patterns, log); err != nil {
				live.Unknown = true
				findings = append(findings, failed("source "+s.Name, err)...)
			}
		}
		sources = append(sources, live)
	}
	if len(sources) == 0 {
		return nil, failed("sources", errors.New("the configuration has none: nothing is fed"))
	}
	return append(protocolProblems(c, set), set.LintTables(sources)...), findings
}

func describeSource(ctx context.Context, s config.Source, patterns *cdc.Include, log *slog.Logger) (*cdc.Include, []cdc.TableInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	include, err := cdc.NewInclude(s.Include)
	if err != nil {
		return nil, nil, fmt.Errorf("source %s: %w", s.Name, err)
	}
	feeder, err := NewFeeder(s, log)
	if err != nil {
		return include, nil, err
	}
	d, ok := feeder.(cdc.Describer)
	if !ok {
		return include, nil, errors.New("it cannot describe its tables")
	}
	tables, err := d.Describe(ctx, patterns)
	if se := (*cdc.SourceError)(nil); errors.As(err, &se) {
		err = errors.New(hinted(se.Err.Error(), se.Hint)) // which source is told beside it
	}
	return include, tables, err
}
