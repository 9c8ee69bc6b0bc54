package changelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const registryVersion = 1

// SavedRing is a ring record that a worker of a fleet has seen: the value under ring/<fleet>/<epoch>, docs/TOPICS.md.
type SavedRing struct {
	Epoch  int64
	Seen   time.Time       // when a worker had it in sight
	By     string          // that worker's host
	Record json.RawMessage // as sink.ParseRecord reads it
}

// SavedHot is a hot key as a worker of a fleet knew it: the value under hot/<fleet>/<key>. sink.HotEntry says what the fields mean.
type SavedHot struct {
	Copies   int
	Revision int64
	Most     int
	Until    time.Time
}

// SavedNewest says up to where workers of a fleet have seen the registry: the value under registry/<fleet>. It is written after what it
// names.
type SavedNewest struct {
	Epoch       int64
	HotRevision int64
}

type ringValue struct {
	V      int             `json:"v"`
	Epoch  int64           `json:"epoch"`
	Seen   time.Time       `json:"seen"`
	By     string          `json:"by"`
	Record json.RawMessage `json:"record"`
}

type hotValue struct {
	V        int        `json:"v"`
	Copies   int        `json:"copies"`
	Revision int64      `json:"revision"`
	Most     int        `json:"most"`
	Until    *time.Time `json:"until,omitempty"`
}

type newestValue struct {
	V           int   `json:"v"`
	Epoch       int64 `json:"epoch"`
	HotRevision int64 `json:"hot_revision"`
}

// RingKey is where a ring record stands on the state topic.
func RingKey(fleet string, epoch int64) string {
	return StateKey("ring", fleet, strconv.FormatInt(epoch, 10))
}

// HotKey is where a hot key stands on the state topic.
func HotKey(fleet, key string) string { return StateKey("hot", fleet, key) }

// NewestKey is where it stands up to where a fleet's workers have seen the registry.
func NewestKey(fleet string) string { return StateKey("registry", fleet) }

// LoadRings returns a fleet's ring records by epoch. The error joins those that cannot be read: they are no reason to do without the others.
func (s *State) LoadRings(fleet string) (map[int64]SavedRing, error) {
	all := map[int64]SavedRing{}
	var bad []error
	for key, e := range s.Under("ring", fleet) {
		var r ringValue
		err := DecodeStrict(e.Value, registryVersion, &r)
		if err == nil && key != RingKey(fleet, r.Epoch) {
			err = fmt.Errorf("the record is of epoch %d", r.Epoch)
		}
		if err != nil {
			bad = append(bad, s.BadRecord(key, e, fmt.Errorf("decoding a ring record: %w", err)))
			continue
		}
		all[r.Epoch] = SavedRing{r.Epoch, r.Seen, r.By, r.Record}
	}
	return all, errors.Join(bad...)
}

// LoadHot returns a fleet's hot keys. The error is as LoadRings'.
func (s *State) LoadHot(fleet string) (map[string]SavedHot, error) {
	all := map[string]SavedHot{}
	var bad []error
	for key, e := range s.Under("hot", fleet) {
		var r hotValue
		parts, err := SplitStateKey(key)
		if err == nil && len(parts) != 3 {
			err = errors.New("its key has not three parts")
		}
		if err == nil {
			err = DecodeStrict(e.Value, registryVersion, &r)
		}
		if err != nil {
			bad = append(bad, s.BadRecord(key, e, fmt.Errorf("decoding a hot key: %w", err)))
			continue
		}
		h := SavedHot{Copies: r.Copies, Revision: r.Revision, Most: r.Most}
		if r.Until != nil {
			h.Until = *r.Until
		}
		all[parts[2]] = h
	}
	return all, errors.Join(bad...)
}

// LoadNewest returns up to where a fleet's workers have seen the registry; nothing where none was written.
func (s *State) LoadNewest(fleet string) (SavedNewest, error) {
	e, found := s.Get(NewestKey(fleet))
	if !found {
		return SavedNewest{}, nil
	}
	n, err := DecodeNewest(e.Value)
	if err != nil {
		return n, s.BadRecord(NewestKey(fleet), e, err)
	}
	return n, nil
}

// DecodeNewest reads the value under NewestKey.
func DecodeNewest(value []byte) (SavedNewest, error) {
	var r newestValue
	if err := DecodeStrict(value, registryVersion, &r); err != nil {
		return SavedNewest{}, fmt.Errorf("decoding how far the registry was seen: %w", err)
	}
	return SavedNewest{r.Epoch, r.HotRevision}, nil
}

// PutRing writes a ring record down.
func (s *StateStore) PutRing(ctx context.Context, fleet string, r SavedRing) error {
	return s.putJSON(ctx, RingKey(fleet, r.Epoch), ringValue{registryVersion, r.Epoch, r.Seen.UTC(), r.By, r.Record})
}

// PutHot writes a hot key down.
func (s *StateStore) PutHot(ctx context.Context, fleet, key string, h SavedHot) error {
	r := hotValue{V: registryVersion, Copies: h.Copies, Revision: h.Revision, Most: h.Most}
	if !h.Until.IsZero() {
		until := h.Until.UTC()
		r.Until = &until
	}
	return s.putJSON(ctx, HotKey(fleet, key), r)
}

// PutNewest says up to where the registry was seen.
func (s *StateStore) PutNewest(ctx context.Context, fleet string, n SavedNewest) error {
	return s.putJSON(ctx, NewestKey(fleet), newestValue{registryVersion, n.Epoch, n.HotRevision})
}
