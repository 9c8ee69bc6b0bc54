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

	// Include is what the source chose when it was last fed, in its own record: what it chooses beside that joins later.
	Include []string `json:"include,omitempty"`
}

const fedVersion = 1

// FedKey is where it is said of a table; an empty one stands for the whole source.
func FedKey(source, table string) string {
	if table == "" {
		return StateKey("fed", source)
	}
	return StateKey("fed", source, table)
}

// PutFed writes from where tables are fed.
func (s *StateStore) PutFed(ctx context.Context, fed ...Fed) error {
	var writes []Write
	for _, f := range fed {
		f.V = fedVersion
		value, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("encoding from where a table is fed: %w", err)
		}
		writes = append(writes, Write{FedKey(f.Source, f.Table), value})
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
