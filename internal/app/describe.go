package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/config"
	"invalidator/mapping"
)

// TablesChecked is what CheckTables found.
type TablesChecked struct {
	Problems []mapping.Problem // at places of the mapping files
	Findings []Finding         // of sources that could not be asked, or whose topics have something wrong
	Notes    []Finding         // what those topics show that is no fault
	Topics   []SeenTopic       // of the sources that somebody else feeds
}

// CheckTables asks the configured databases, and the topics that somebody else feeds, about the tables that the mappings name, and
// says what of the mappings cannot work there. A source that cannot be asked is a finding too, and what it holds is then not known.
func CheckTables(ctx context.Context, c *config.Config, set *mapping.Set, log *slog.Logger) TablesChecked {
	patterns, err := cdc.NewInclude(set.Patterns())
	if err != nil {
		return TablesChecked{Findings: failed("mappings", err)}
	}
	if len(c.Sources) == 0 {
		return TablesChecked{Findings: failed("sources", errors.New("the configuration has none: nothing is fed"))}
	}
	var out TablesChecked
	var topics map[string]*mapping.LiveTopics
	topics, out.Topics, out.Findings = seeTopics(ctx, c, set, log)
	for _, f := range out.Findings {
		if f.Severity == string(mapping.SeverityNote) {
			out.Notes = append(out.Notes, f)
		}
	}
	out.Findings = slices.DeleteFunc(out.Findings, func(f Finding) bool { return f.Severity == string(mapping.SeverityNote) })
	var sources []mapping.LiveSource
	for _, s := range c.Sources {
		live := mapping.LiveSource{Name: s.Name}
		if s.Topics != nil {
			live.Unknown, live.Topics = true, topics[s.Name]
			if live.Topics == nil {
				live.Topics = &mapping.LiveTopics{}
			}
			format := envelope.Format(s.Topics.Format)
			live.Topics.Format, live.Topics.Unwrapped = s.Topics.Format, format == envelope.Unwrapped
			live.Topics.Typed = s.Topics.Registry != nil // Avro is never without its schema
		} else if live.Include, live.Tables, err = describeSource(ctx, s, patterns, log); err != nil {
			live.Unknown = true
			out.Findings = append(out.Findings, failed("source "+s.Name, err)...)
		}
		sources = append(sources, live)
	}
	out.Problems = append(protocolProblems(c, set), set.LintTables(sources)...)
	return out
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
