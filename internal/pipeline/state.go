package pipeline

import (
	"encoding/json"
	"fmt"

	"invalidator/internal/changelog"
)

// State is what a worker keeps of a partition that it owns, and what the next owner gets: a record on the state topic to
// which the offset commit points, with the journal's pages beside it (docs/TOPICS.md).
type State struct {
	V       int           `json:"v"`       // 3
	Offset  int64         `json:"offset"`  // everything below has had its rounds on every copy, except what Debts say
	Debts   []Debt        `json:"debts"`   // by kind and name
	Journal []JournalLine `json:"journal"` // of the minute that runs
	Issued  Sight         `json:"issued"`  // the greatest that anything was issued under: nothing is issued under less any more
	Acted   Acted         `json:"acted"`
}

// Acted is what everything that follows from it has been done of, or is in the state's debts.
type Acted struct {
	Epochs      []int64     `json:"epochs"`           // of all ring records that were known when the ring was looked at last; none: nobody has yet
	HotRevision int64       `json:"hot_revision"`     // the copies of all hot keys that were new have been deleted
	Control     ControlMark `json:"control,omitzero"` // behind the last plan that named the partition
}

// Sight is a ring epoch and a hot keys' revision.
type Sight struct {
	Epoch       int64 `json:"epoch"`
	HotRevision int64 `json:"hot_revision"`
}

const stateVersion = 3

func (s State) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of numbers, texts and times
	}
	return b
}

// parseState reads what an earlier owner left; nil is nothing. Versions 1 and 2 did not say which ring records they had acted on: see actedBefore.
// Version 1 had neither debts nor a journal, and what it had acted on is what it had issued under.
func parseState(b []byte) (s State, err error) {
	if b == nil {
		return State{V: stateVersion}, nil
	}
	var version struct{ V int }
	if err := json.Unmarshal(b, &version); err != nil {
		return s, fmt.Errorf("reading a partition's state: %w", err)
	}
	switch version.V {
	case 1, 2:
		return parseOldState(b, version.V)
	case stateVersion:
		if err := json.Unmarshal(b, &s); err != nil {
			return s, fmt.Errorf("reading a partition's state: %w", err)
		}
		return s, nil
	}
	return s, fmt.Errorf("a partition's state of version %d is not known (a newer version of the service wrote it)", version.V)
}

func parseOldState(b []byte, version int) (s State, err error) {
	var old struct {
		Offset        int64
		Debts         []Debt
		Journal       []JournalLine
		Issued, Acted Sight
	}
	if err := json.Unmarshal(b, &old); err != nil {
		return s, fmt.Errorf("reading a partition's state of version %d: %w", version, err)
	}
	if version == 1 {
		if len(old.Debts)+len(old.Journal) > 0 {
			return s, fmt.Errorf("a partition's state of version 1 has debts or a journal, which no worker wrote")
		}
		old.Issued = old.Acted
	}
	return State{V: version, Offset: old.Offset, Debts: old.Debts, Journal: old.Journal, Issued: old.Issued, Acted: Acted{HotRevision: old.Acted.HotRevision}}, nil
}

// actedBefore are the ring records that earlier owners had acted on. One of a version that did not say it has acted on the least under which anything
// was issued.
func (s State) actedBefore(j *journal) []int64 {
	switch least := j.leastEpoch(); {
	case s.V >= stateVersion:
		return s.Acted.Epochs
	case least > 0:
		return []int64{least}
	case s.Issued.Epoch > 0:
		return []int64{s.Issued.Epoch}
	}
	return nil
}

// knowsKinds tells of a debt that a newer version wrote.
func (s State) knowsKinds() error {
	for _, d := range s.Debts {
		switch d.Kind {
		case KindNode, KindTemplate, KindPool, KindStorm, KindEpoch:
		case KindReplay:
			if d.Order == nil || d.To == nil {
				return fmt.Errorf("a partition's state has the replay %s, and does not say of what", d.Name)
			}
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
