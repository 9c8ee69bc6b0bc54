package pipeline

import (
	"fmt"
	"regexp"
	"strings"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// KeySource is the source of keys that somebody sent, on a topic of that name (changelog.Names.Keys). Every worker has it beside the configured ones. Its
// records are changes like others: their keys have their rounds, are owed, paused, paced and issued again as a row's are. Its name is the topic's, which no
// configured source can have.
func KeySource(topic string) *Source {
	return &Source{
		Name:    topic,
		Pattern: regexp.MustCompile("^" + regexp.QuoteMeta(topic) + "$"),
		Decode:  envelope.Config{Format: envelope.Keys, Source: topic},
	}
}

// reportUnclaimed is what reports call keys that were sent and are of nobody's pool.
const reportUnclaimed = "unclaimed"

// unclaimed counts and names keys that were sent and whose pool no file in force claims: they are deleted all the same.
func (p *partition) unclaimed(row *cdc.RowChange, offset int64) {
	if row.Op != cdc.Keys {
		return
	}
	n, sample := 0, ""
	for _, k := range p.result.Keys {
		if k.Template.Pool == mapping.UnclaimedPool {
			n, sample = n+1, k.Text
		}
	}
	p.w.metrics.unclaimed.Add(float64(n))
	if n > 0 {
		p.w.reports.unclaimed(n, sample, p.id, offset)
	}
}

// unclaimed gives a sample of the keys.
func (r *reporter) unclaimed(n int, sample string, at changelog.Partition, offset int64) {
	if !r.due(report{what: reportUnclaimed}, reportEvery) {
		return
	}
	r.log.Warn("keys were sent whose pool no mapping file in force claims: they are deleted without hot copies but those of the registry (is a name misspelt?)",
		"keys", n, "key", sink.LoggedKey(strings.Clone(sample)), "topic", at.Topic, "partition", at.Number, "offset", offset)
}

// refusedSent is refusedKey of a key that was sent: what is wrong with it names it.
func refusedSent(s *mapping.Skip) error { return fmt.Errorf("%s: %s", s.Template.Text, s.Detail) }
