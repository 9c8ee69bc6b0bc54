package app

import (
	"fmt"
	"maps"
	"slices"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/mapping"
)

// findings are what is wrong with a topic's records.
func (s *sample) findings(src *seenSource, where string) (all []Finding) {
	add := func(sev cdc.Severity, what string) { all = append(all, Finding{string(sev), where, what}) }
	switch {
	case s.unread != "" && s.others < s.rows+s.snapshots+s.truncates: // a few, among others that are read
		add(cdc.SeverityWarning, hinted(fmt.Sprintf("%d of %d records %s", s.others, s.others+s.rows+s.snapshots+s.truncates, s.unread), s.mend))
	case s.unread != "":
		add(cdc.SeverityError, hinted("its records "+s.unread, s.mend))
	case s.broken != nil:
		add(cdc.SeverityWarning, s.broken.Error())
	}
	if s.envelopes > 0 {
		add(cdc.SeverityWarning, hinted("the source says unwrapped, and its records are envelopes: they are read as such, and what is said here of old rows does not hold of them",
			"set topics.format: debezium"))
	}
	if s.placeholder && src.unavailable != "" && src.unavailable != string(unavailable[0]) {
		add(cdc.SeverityWarning, hinted(fmt.Sprintf("its records hold %s, and topics.unavailable is %s: it is taken for a value", unavailable[0], src.unavailable),
			"take topics.unavailable away, or set unavailable.value.placeholder of the connector"))
	}
	for _, d := range s.doubts {
		add(cdc.SeverityWarning, d)
	}
	return all
}

// notes are what the topics of a source show that is no fault, each once a source.
func (s *seenSource) notes(where string) (all []Finding) {
	note := func(what, hint string) {
		all = append(all, Finding{string(mapping.SeverityNote), where, hinted(what, hint)})
	}
	snapshots, truncates, ours := 0, 0, false
	idle := map[string][]string{} // by word: the topics that hold nothing else
	seen := map[string]bool{}
	for _, topic := range slices.Sorted(maps.Keys(s.samples)) {
		t := s.samples[topic]
		snapshots, truncates = snapshots+t.snapshots, truncates+t.truncates
		ours = ours || t.ours
		for _, word := range slices.Sorted(maps.Keys(t.ignored)) {
			seen[word] = true
			if t.rows+t.snapshots+t.truncates == 0 && len(t.ignored) == 1 {
				idle[word] = append(idle[word], topic)
			}
		}
	}
	for _, word := range []string{envelope.IgnoredHeartbeat, envelope.IgnoredTransaction} {
		if topics := idle[word]; len(topics) > 0 {
			note(fmt.Sprintf("topic %s holds %s records alone: they are read and passed over", topics[0], word), "narrow topics.pattern to spare the reading")
		}
	}
	switch {
	case snapshots == 0:
	case s.snapshots:
		note("a snapshot's rows (op r) stand among the newest records: each is a delete, as topics.snapshots says", "")
	default:
		note("a snapshot's rows (op r) stand among the newest records: they are passed over", "topics.snapshots: true has each be a delete")
	}
	if s.format == envelope.Maxwell || truncates > 0 || ours {
		return all
	}
	hint := "set skipped.operations=none"
	if !seen[envelope.IgnoredDDL] {
		hint += "; for MySQL and MariaDB let topics.pattern take in the schema-change topic too, which tells of DROP and RENAME"
	}
	note("no truncate stands among the newest records, and Debezium skips them unless it is told: an emptied table's copies would stay", hint)
	return all
}
