package changelog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const pauseVersion = 1

// Pause says that a pool of a fleet is paused, or that it is no more.
type Pause struct {
	Pool   string
	Paused bool
	By     string    // who did it
	At     time.Time // when
	Reason string    // why; may be empty
}

// pauseRecord is the value under pause/<fleet>/<pool>: docs/TOPICS.md.
type pauseRecord struct {
	V      int       `json:"v"`
	Pool   string    `json:"pool"`
	Paused bool      `json:"paused"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// PauseKey is the key whose record changes after any of a fleet's pauses did: it is what workers follow.
func PauseKey(fleet string) string { return StateKey("pause", fleet) }

// PutPause writes a pause, and then what workers follow. Where it fails in between, writing it again is harmless.
func (s *StateStore) PutPause(ctx context.Context, fleet string, p Pause) error {
	r := pauseRecord{pauseVersion, p.Pool, p.Paused, p.By, p.At.UTC(), p.Reason}
	if err := s.putJSON(ctx, StateKey("pause", fleet, p.Pool), r); err != nil {
		return err
	}
	return s.putJSON(ctx, PauseKey(fleet), r)
}

// LoadPauses returns what was last done to each pool of a fleet that ever was paused. A record that cannot be read counts as a pause: what is held
// back is not lost. The error, of *RecordErrors, tells of it; the others are there all the same.
func (s *State) LoadPauses(fleet string) (map[string]Pause, error) {
	all := map[string]Pause{}
	var bad []error
	for key, e := range s.Under("pause", fleet) {
		parts, err := SplitStateKey(key)
		if err != nil || len(parts) != 3 {
			continue // no key of ours
		}
		var r pauseRecord
		if err := DecodeStrict(e.Value, pauseVersion, &r); err != nil {
			bad = append(bad, s.BadRecord(key, e, fmt.Errorf("decoding a pause: %w", err)))
			r = pauseRecord{Paused: true}
		}
		all[parts[2]] = Pause{parts[2], r.Paused, r.By, r.At, r.Reason}
	}
	return all, errors.Join(bad...)
}
