package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
)

const (
	// archiveSets is how many sets are kept compiled: a pass asks for the few that were in force in its range.
	archiveSets = 8
	// archiveTimeout bounds the writing of a set that is to come into force.
	archiveTimeout = 5 * time.Second
)

// archive has the sets of mappings that were in force in a fleet, on the state topic, for as long as a journal line can name them.
type archive struct {
	fleet  string
	maxTTL time.Duration // how long a journal line lives
	store  *changelog.StateStore
	log    *slog.Logger

	turn chan struct{} // holds one token: who has it reads the topic

	mu   sync.Mutex
	sets []*mapping.Set // compiled; guarded by mu; the one that was asked for last is the last
}

func newArchive(fleet string, maxTTL time.Duration, store *changelog.StateStore, log *slog.Logger) *archive {
	return &archive{fleet: fleet, maxTTL: maxTTL, store: store, log: log, turn: make(chan struct{}, 1)}
}

// keep writes a set down, and returns when that is acknowledged. st is what the topic says; nil: it is asked.
func (a *archive) keep(ctx context.Context, set *mapping.Set, st *changelog.State) error {
	if st == nil {
		var err error
		if st, err = a.store.Load(ctx); err != nil {
			return err
		}
	}
	files := make([]changelog.MappingSetFile, len(set.Files()))
	for i, f := range set.Files() {
		files[i] = changelog.MappingSetFile{Name: filepath.Base(f.Name), Text: f.Text()}
	}
	err := a.store.PutMappingSet(ctx, a.fleet, changelog.MappingSet{Fingerprint: set.Fingerprint(), Files: files, Used: time.Now()}, st)
	if err == nil {
		a.add(set)
	}
	return err
}

// upkeep notes that a set is in force still, and removes those that nobody needs.
func (a *archive) upkeep(ctx context.Context, set *mapping.Set, st *changelog.State) error {
	if err := a.keep(ctx, set, st); err != nil {
		return err
	}
	return a.store.RemoveMappingSets(ctx, a.fleet, st, a.maxTTL, time.Now())
}

// Mapper gives a set that was in force, by its fingerprint. The error wraps changelog.ErrNoMappingSet where the topic does not have it, or
// has what this version cannot make that set of.
func (a *archive) Mapper(ctx context.Context, fingerprint string) (mapping.Mapper, error) {
	if set := a.compiled(fingerprint); set != nil {
		return set, nil
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if set := a.compiled(fingerprint); set != nil { // by whoever had the turn before
		return set, nil
	}
	st, err := a.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	saved, err := st.LoadMappingSet(a.fleet, fingerprint)
	if err != nil {
		return nil, err
	}
	set, err := compileSet(saved)
	if err != nil {
		return nil, err
	}
	a.add(set)
	return set, nil
}

// issuedMappings is the pipeline's Archive.
type issuedMappings struct{ *archive }

// Mapper implements pipeline.Archive. A record that this version cannot read is as good as none: no other try brings it.
func (m issuedMappings) Mapper(ctx context.Context, fingerprint string) (mapping.Mapper, error) {
	set, err := m.archive.Mapper(ctx, fingerprint)
	var unreadable *changelog.RecordError
	if errors.Is(err, changelog.ErrNoMappingSet) || errors.As(err, &unreadable) {
		err = fmt.Errorf("%w: %w", pipeline.ErrNoMappings, err)
	}
	return set, err
}

func compileSet(saved changelog.MappingSet) (*mapping.Set, error) {
	var files []*mapping.File
	for _, s := range saved.Files {
		f, problems := mapping.Parse(s.Name, []byte(s.Text))
		if f == nil { // its language was another version's
			return nil, fmt.Errorf("%w: %s: its file %s is wrong for this version: %s", changelog.ErrNoMappingSet, saved.Fingerprint, s.Name, problems[0].String())
		}
		files = append(files, f)
	}
	set, problems := mapping.NewSet(files)
	if set.Fingerprint() != saved.Fingerprint {
		return nil, fmt.Errorf("%w: %s: this version makes another set of its files %v", changelog.ErrNoMappingSet, saved.Fingerprint, problems)
	}
	return set, nil
}

func (a *archive) compiled(fingerprint string) *mapping.Set {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.sets, func(s *mapping.Set) bool { return s.Fingerprint() == fingerprint })
	if i < 0 {
		return nil
	}
	set := a.sets[i]
	a.sets = append(slices.Delete(a.sets, i, i+1), set)
	return set
}

func (a *archive) add(set *mapping.Set) {
	if a.compiled(set.Fingerprint()) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.sets) == archiveSets {
		a.sets = slices.Delete(a.sets, 0, 1)
	}
	a.sets = append(a.sets, set)
}
