package changelog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"invalidator/cdc"
)

const positionVersion = 1

// positionRecord is the value under position/<source>/<generation>.
type positionRecord struct {
	V          int          `json:"v"`
	Source     string       `json:"source"`
	Generation int64        `json:"generation"`
	Position   cdc.Position `json:"position"`
	Saved      time.Time    `json:"saved"`
}

// PositionKey is where the feeder of that generation keeps a source's position.
func PositionKey(source string, generation int64) string {
	return StateKey("position", source, strconv.FormatInt(generation, 10))
}

// SavedPosition is what the state topic says about a source.
type SavedPosition struct {
	Position   cdc.Position
	Generation int64 // of the feeder that saved it; 0 where nothing is saved
	Saved      time.Time
	Found      bool
	Stale      []string // keys of older generations: remove them after the first write of one's own
}

// LoadPosition returns the position of the highest generation, whatever lower ones say: a lower one is a paused old feeder
// that woke up, or what it left. A feeder that starts takes Generation+1 for its own.
func (s *State) LoadPosition(source string) (SavedPosition, error) {
	var (
		best SavedPosition
		seen []string
	)
	for key, e := range s.Under("position", source) {
		r, err := decodePosition(e.Value)
		if err == nil && key != PositionKey(source, r.Generation) {
			err = fmt.Errorf("the record is of source %q, generation %d", r.Source, r.Generation)
		}
		if err != nil {
			return SavedPosition{}, s.BadRecord(key, e, err)
		}
		seen = append(seen, key)
		if !best.Found || r.Generation > best.Generation {
			best = SavedPosition{Position: r.Position, Generation: r.Generation, Saved: r.Saved, Found: true}
		}
	}
	for _, key := range seen {
		if key != PositionKey(source, best.Generation) {
			best.Stale = append(best.Stale, key)
		}
	}
	return best, nil
}

// PutPosition saves a source's position for the feeder of that generation.
func (s *StateStore) PutPosition(ctx context.Context, source string, generation int64, p cdc.Position) error {
	value, err := json.Marshal(positionRecord{positionVersion, source, generation, p, time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("encoding a position: %w", err)
	}
	return s.Put(ctx, PositionKey(source, generation), value)
}

func decodePosition(value []byte) (positionRecord, error) {
	var r positionRecord
	if err := DecodeStrict(value, positionVersion, &r); err != nil {
		return r, fmt.Errorf("decoding a position: %w", err)
	}
	if r.Generation < 1 {
		return r, fmt.Errorf("decoding a position: generation %d", r.Generation)
	}
	if r.Position.IsZero() {
		return r, fmt.Errorf("decoding a position: it is empty")
	}
	return r, nil
}

// DecodeStrict reads the one JSON object in data into v, for records whose field "v" is version. An unknown version, an
// unknown field or anything after the object is an error: a record that is half understood is not understood.
func DecodeStrict(data []byte, version int, v any) error {
	var head struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.V != version {
		return fmt.Errorf("%w %d, this program knows %d", ErrUnknownVersion, head.V, version)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
