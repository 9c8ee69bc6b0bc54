package changelog

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"

	"invalidator/cdc"
)

const schemaVersion = 1

// maxSchemaBytes bounds a record of layouts: what is above it, the oldest first, is left out.
const maxSchemaBytes = 900 << 10

// schemaRecord is the value under schema/<source>/<database>/<table>/<generation>: docs/TOPICS.md.
type schemaRecord struct {
	V          int          `json:"v"`
	Source     string       `json:"source"`
	Schema     string       `json:"schema"`
	Table      string       `json:"table"`
	Generation int64        `json:"generation"`
	Layouts    []cdc.Layout `json:"layouts"` // in the order of the log
}

// Schemas are the layouts of a source's tables as the leader of one generation has followed them. It implements cdc.History.
//
// Layouts say what a table was up to the position that they were kept with, and they are complete only there: a leader that was paused
// and wakes, or one that began and died before it saved a position, knows of changes that others do not, and lacks theirs. So the
// records of a generation count with a position of that generation and with no other. A leader copies what it finds before
// it saves its first position (Replace). A position that was saved by whoever keeps no layouts has none.
//
// A crash within Replace or Put leaves, of each table, its older record or its newer, and both are true at the position that is saved.
type Schemas struct {
	store      *StateStore
	source     string
	generation int64
	written    map[cdc.TableID][sha256.Size]byte // records of this generation that are on the topic

	Known map[cdc.TableID][]cdc.Layout // as of the saved position
	Stale []string                     // keys of other generations: remove them after the first position of one's own
}

func schemaKey(source string, t cdc.TableID, generation int64) string {
	return StateKey("schema", source, t.Schema, t.Table, strconv.FormatInt(generation, 10))
}

// Schemas finds what belongs to a saved position of a source, for the leader of a generation. A record that counts and cannot be
// read is an error, a *RecordError.
func (s *StateStore) Schemas(st *State, source string, saved SavedPosition, generation int64) (*Schemas, error) {
	h := &Schemas{store: s, source: source, generation: generation,
		written: map[cdc.TableID][sha256.Size]byte{}, Known: map[cdc.TableID][]cdc.Layout{}}
	for key, e := range st.Under("schema", source) {
		parts, err := SplitStateKey(key)
		if err != nil || len(parts) != 5 {
			continue // no key of ours
		}
		id := cdc.TableID{Schema: parts[2], Table: parts[3]}
		of, err := strconv.ParseInt(parts[4], 10, 64)
		if err != nil {
			continue
		}
		if of == generation {
			h.written[id] = sha256.Sum256(e.Value)
		} else {
			h.Stale = append(h.Stale, key)
		}
		if !saved.Found || of != saved.Generation {
			continue
		}
		r, err := decodeSchema(e.Value)
		if err == nil && key != schemaKey(r.Source, cdc.TableID{Schema: r.Schema, Table: r.Table}, r.Generation) {
			err = fmt.Errorf("decoding layouts: the record is of source %q, table %s.%s, generation %d", r.Source, r.Schema, r.Table, r.Generation)
		}
		if err != nil {
			return nil, st.BadRecord(key, e, err)
		}
		h.Known[id] = r.Layouts
	}
	return h, nil
}

func decodeSchema(value []byte) (r schemaRecord, err error) {
	if err := DecodeStrict(value, schemaVersion, &r); err != nil {
		return r, fmt.Errorf("decoding layouts: %w", err)
	}
	return r, nil
}

// Replace implements cdc.History.
func (h *Schemas) Replace(ctx context.Context, all map[cdc.TableID][]cdc.Layout) error {
	if err := h.Put(ctx, all); err != nil {
		return err
	}
	var gone []string
	for id := range h.written {
		if len(all[id]) == 0 {
			gone = append(gone, schemaKey(h.source, id, h.generation))
			delete(h.written, id)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := h.store.Remove(ctx, gone...); err != nil {
		return fmt.Errorf("removing layouts of source %s: %w", h.source, err)
	}
	return nil
}

// Put implements cdc.History. Records that stand already are not written again.
func (h *Schemas) Put(ctx context.Context, some map[cdc.TableID][]cdc.Layout) error {
	var writes []Write
	for id, layouts := range some {
		if len(layouts) == 0 {
			continue
		}
		value, err := h.encode(id, layouts)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(value)
		if old, ok := h.written[id]; ok && old == sum {
			continue
		}
		h.written[id] = sum
		writes = append(writes, Write{schemaKey(h.source, id, h.generation), value})
	}
	if len(writes) == 0 {
		return nil
	}
	if _, err := h.store.PutAll(ctx, writes); err != nil {
		return fmt.Errorf("keeping the layouts of tables of source %s: %w", h.source, err)
	}
	return nil
}

// encode makes a record that the topic takes. A table whose newest layout alone is too large is one of which nothing is known.
func (h *Schemas) encode(id cdc.TableID, layouts []cdc.Layout) ([]byte, error) {
	for {
		value, err := json.Marshal(schemaRecord{schemaVersion, h.source, id.Schema, id.Table, h.generation, layouts})
		switch {
		case err != nil:
			return nil, fmt.Errorf("encoding layouts: %w", err)
		case len(value) <= maxSchemaBytes:
			return value, nil
		case len(layouts) > 1:
			layouts = layouts[1:]
		case layouts[0].Columns == nil:
			return nil, fmt.Errorf("keeping the layout of %s: its place alone is larger than %d bytes", id, maxSchemaBytes)
		default:
			layouts = []cdc.Layout{{From: layouts[0].From}}
		}
	}
}
