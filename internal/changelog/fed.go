package changelog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"invalidator/cdc"
)

// Fed says from where a source's tables are fed: the value under fed/<source>, for all of a new source, and under
// fed/<source>/<schema.table>, for a table that joined later. What was committed in them before was not seen.
type Fed struct {
	V      int          `json:"v"`
	Source string       `json:"source"`
	Table  string       `json:"table,omitempty"` // schema.table
	From   cdc.Position `json:"from"`
	At     time.Time    `json:"at"`
}

const fedVersion = 1

// FedKey is where it is said of a table; an empty one stands for the whole source.
func FedKey(source, table string) string {
	if table == "" {
		return StateKey("fed", source)
	}
	return StateKey("fed", source, table)
}

// PutFed writes from where tables ("schema.table") are fed; none: the whole source.
func (s *StateStore) PutFed(ctx context.Context, source string, from cdc.Position, tables ...string) error {
	if len(tables) == 0 {
		tables = []string{""}
	}
	var writes []Write
	for _, t := range tables {
		value, err := json.Marshal(Fed{fedVersion, source, t, from, time.Now().UTC()})
		if err != nil {
			return fmt.Errorf("encoding from where a table is fed: %w", err)
		}
		writes = append(writes, Write{FedKey(source, t), value})
	}
	_, err := s.PutAll(ctx, writes)
	return err
}

// LoadFed returns from where a table is fed: its own record, or else the source's. found is false where there is neither.
func (s *State) LoadFed(source, table string) (f Fed, found bool, err error) {
	for _, key := range []string{FedKey(source, table), FedKey(source, "")} {
		e, ok := s.Get(key)
		if !ok {
			continue
		}
		if err := DecodeStrict(e.Value, fedVersion, &f); err != nil {
			return f, false, s.BadRecord(key, e, fmt.Errorf("decoding from where a table is fed: %w", err))
		}
		return f, true, nil
	}
	return f, false, nil
}
