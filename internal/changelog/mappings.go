package changelog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

const mappingVersion = 1

// MappingFile is a mapping file as it was last in force in a fleet.
type MappingFile struct {
	Name  string    // without its folder
	Team  string    // whose it is
	Text  string    // as it stood in the folder
	Since time.Time // when it came into force with the process that wrote it down
	By    string    // that process's host
	Gone  time.Time // since when it is in force no more, as the folder had it no more; zero: it is
}

// mappingRecord is the value under mappings/<fleet>/<file>/<generation>: docs/TOPICS.md.
type mappingRecord struct {
	V          int        `json:"v"`
	File       string     `json:"file"`
	Team       string     `json:"team"`
	Generation int64      `json:"generation"`
	Since      time.Time  `json:"since"`
	By         string     `json:"by"`
	Gone       *time.Time `json:"gone,omitempty"`
	SHA256     string     `json:"sha256"` // of text, in hex
	Text       string     `json:"text"`
}

// SavedMapping is what the state topic says about a mapping file.
type SavedMapping struct {
	MappingFile
	Generation int64    // the highest there is
	Stale      []string // keys of older generations: remove them after the next write
	Err        error    // why the record of the highest generation cannot be read: a *RecordError. MappingFile has its name alone then
}

func mappingKey(fleet, file string, generation int64) string {
	return StateKey("mappings", fleet, file, strconv.FormatInt(generation, 10))
}

// LoadMappings returns a fleet's mapping files by name, each as its highest generation has it. A record that cannot be read is
// told in its file's Err: it is no reason to do without the others.
func (s *State) LoadMappings(fleet string) map[string]SavedMapping {
	all := map[string]SavedMapping{}
	for key, e := range s.Under("mappings", fleet) {
		parts, err := SplitStateKey(key)
		if err != nil || len(parts) != 4 {
			continue // no key of ours
		}
		name := parts[2]
		generation, err := strconv.ParseInt(parts[3], 10, 64)
		if err != nil || generation < 1 {
			continue
		}
		best, met := all[name]
		if met && generation < best.Generation {
			best.Stale = append(best.Stale, key)
			all[name] = best
			continue
		}
		now := SavedMapping{MappingFile: MappingFile{Name: name}, Generation: generation, Stale: best.Stale}
		if met {
			now.Stale = append(now.Stale, mappingKey(fleet, name, best.Generation))
		}
		if f, err := decodeMapping(e.Value, name, generation); err != nil {
			now.Err = s.BadRecord(key, e, err)
		} else {
			now.MappingFile = f
		}
		all[name] = now
	}
	return all
}

func decodeMapping(value []byte, name string, generation int64) (MappingFile, error) {
	var r mappingRecord
	if err := DecodeStrict(value, mappingVersion, &r); err != nil {
		return MappingFile{}, fmt.Errorf("decoding a mapping file: %w", err)
	}
	switch {
	case r.File != name || r.Generation != generation:
		return MappingFile{}, fmt.Errorf("decoding a mapping file: the record is of file %q, generation %d", r.File, r.Generation)
	case r.SHA256 != sum(r.Text):
		return MappingFile{}, errors.New("decoding a mapping file: its text is not the one that was written")
	}
	f := MappingFile{Name: r.File, Team: r.Team, Text: r.Text, Since: r.Since, By: r.By}
	if r.Gone != nil {
		f.Gone = *r.Gone
	}
	return f, nil
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// ErrTooLarge is a value that no record of the state topic holds.
var ErrTooLarge = errors.New("too large for a record of the state topic")

// PutMapping writes a mapping file down under the generation after what saved says, and then removes the older ones. Its error
// is ErrTooLarge where no try will do.
func (s *StateStore) PutMapping(ctx context.Context, fleet string, f MappingFile, saved SavedMapping) error {
	r := mappingRecord{
		V: mappingVersion, File: f.Name, Team: f.Team, Generation: saved.Generation + 1, Since: f.Since.UTC(), By: f.By, SHA256: sum(f.Text), Text: f.Text,
	}
	if !f.Gone.IsZero() {
		gone := f.Gone.UTC()
		r.Gone = &gone
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a mapping file: %w", err)
	}
	err = s.Put(ctx, mappingKey(fleet, f.Name, r.Generation), value)
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if err != nil {
		return err
	}
	return s.RemoveMapping(ctx, fleet, saved)
}

// RemoveMapping removes every generation of a file that saved knows.
func (s *StateStore) RemoveMapping(ctx context.Context, fleet string, saved SavedMapping) error {
	keys := saved.Stale
	if saved.Generation > 0 {
		keys = append(keys[:len(keys):len(keys)], mappingKey(fleet, saved.Name, saved.Generation))
	}
	if len(keys) == 0 {
		return nil
	}
	return s.Remove(ctx, keys...)
}
