package pipeline

import (
	"encoding/json"
	"fmt"

	"invalidator/internal/changelog"
)

// State is what a worker keeps of a partition that it owns, and what the next owner gets: a record on the state topic to
// which the offset commit points, with the journal's pages beside it (docs/TOPICS.md).
type State struct {
	V       int           `json:"v"`       // 2
	Offset  int64         `json:"offset"`  // everything below has had its rounds on every copy, except what Debts say
	Debts   []Debt        `json:"debts"`   // by kind and name
	Journal []JournalLine `json:"journal"` // of the minute that runs
	Issued  Sight         `json:"issued"`  // the greatest that anything was issued under: nothing is issued under less any more
	Acted   Sight         `json:"acted"`   // of the hot keys' revision: the copies of all that was new have been deleted. Of the epoch: as Issued
}

// Sight is a ring epoch and a hot keys' revision.
type Sight struct {
	Epoch       int64 `json:"epoch"`
	HotRevision int64 `json:"hot_revision"`
}

const stateVersion = 2

func (s State) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of numbers, texts and times
	}
	return b
}

// parseState reads what an earlier owner left; nil is nothing. Version 1 had neither debts nor a journal, and what it had acted on is what
// it had issued under.
func parseState(b []byte) (s State, err error) {
	if b == nil {
		return State{V: stateVersion}, nil
	}
	var version struct{ V int }
	if err := json.Unmarshal(b, &version); err != nil {
		return s, fmt.Errorf("reading a partition's state: %w", err)
	}
	switch version.V {
	case 1:
		var old struct {
			Offset         int64
			Debts, Journal []json.RawMessage
			Acted          Sight
		}
		if err := json.Unmarshal(b, &old); err != nil {
			return s, fmt.Errorf("reading a partition's state of version 1: %w", err)
		}
		if len(old.Debts)+len(old.Journal) > 0 {
			return s, fmt.Errorf("a partition's state of version 1 has debts or a journal, which no worker wrote")
		}
		return State{V: stateVersion, Offset: old.Offset, Issued: old.Acted, Acted: old.Acted}, nil
	case stateVersion:
		if err := json.Unmarshal(b, &s); err != nil {
			return s, fmt.Errorf("reading a partition's state: %w", err)
		}
		return s, nil
	}
	return s, fmt.Errorf("a partition's state of version %d is not known (a newer version of the service wrote it)", version.V)
}

// knowsKinds tells of a debt that a newer version wrote.
func (s State) knowsKinds() error {
	for _, d := range s.Debts {
		switch d.Kind {
		case KindNode, KindTemplate, KindPool, KindStorm:
		default:
			return fmt.Errorf("a partition's state has a debt of kind %q, which is not known (a newer version of the service wrote it)", d.Kind)
		}
	}
	return nil
}

// Readable tells why what an earlier owner left cannot be gone on from: then the partition must not begin, since what it owes is not known.
func Readable(was changelog.Restored) error {
	s, err := parseState(was.State)
	if err != nil {
		return err
	}
	if err := s.knowsKinds(); err != nil {
		return err
	}
	for _, r := range was.Journal {
		if _, err := parsePage(r.Value); err != nil {
			return fmt.Errorf("the journal record %s: %w", r.Name, err)
		}
	}
	return nil
}
