package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"invalidator/internal/changelog"
	"invalidator/mapping"
)

const (
	// Backoff between two attempts at the state topic.
	lastGoodBackoffMin = time.Second
	lastGoodBackoffMax = 30 * time.Second
	// goneKept is how long a file's last form stays on the state topic after the folder lost it: longer than a folder is
	// mounted wrongly.
	goneKept = 30 * 24 * time.Hour
	// lastGoodEvery is how often, on the average, a process compares the state topic with what it has in force though nothing
	// changed: one that has an older folder may have written that down when it started.
	lastGoodEvery = 30 * time.Minute
)

// open puts the folder in force as a process does that has run until now with what the state topic says was last good: a file
// that fails has its last good form in force, and so has a whole folder that cannot be read or has no file. It waits for a
// topic that cannot be read. The error is a folder that cannot be read while the topic has nothing in its place.
func (m *mappings) open(ctx context.Context, store *changelog.StateStore) error {
	var st *changelog.State
	err := insist(ctx, m.log, "reading which mappings were last good", func() (err error) {
		st, err = store.Load(ctx)
		return err
	})
	if err != nil {
		return err
	}
	m.store = store
	if err := m.begin(st.LoadMappings(m.fleet)); err != nil || m.archive == nil {
		return err
	}
	return m.keepFirst(ctx, st)
}

// insist tries until it works, or ctx ends, whose error it returns then. Nothing of the process starts before, and the log says so at each try.
func insist(ctx context.Context, log *slog.Logger, what string, try func() error) error {
	for backoff := lastGoodBackoffMin; ; backoff = min(2*backoff, lastGoodBackoffMax) {
		err := try()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		log.Error(what+"; nothing starts before", "error", err, "again_in", backoff)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff):
		}
	}
}

// keepFirst archives what is in force at the start, before anything is mapped. It waits for a topic that cannot be written.
func (m *mappings) keepFirst(ctx context.Context, st *changelog.State) error {
	return insist(ctx, m.log, "writing down the set of mappings", func() error {
		limit, cancel := context.WithTimeout(ctx, archiveTimeout)
		defer cancel()
		return m.archive.keep(limit, m.today().set, st)
	})
}

// begin is open over what the topic says.
func (m *mappings) begin(saved map[string]changelog.SavedMapping) error {
	m.saved = saved
	live, all := m.lastGood(saved)
	set, problems, err := all.Reload(m.dir)
	if err != nil { // what was gone from the folder comes back only with a file of its name
		set, problems, err = live.Reload(m.dir)
	}
	switch {
	case err == nil:
		m.problems = problems
	case len(live.Files()) == 0:
		return fmt.Errorf("loading mappings: %w (and the state topic has none that were last good)", err)
	default:
		problems = []mapping.Problem{m.folderFails(err)}
	}
	m.tell(set, problems)
	m.mu.Lock()
	m.state.set, m.state.since = set, time.Now()
	for _, f := range set.Files() {
		if name := filepath.Base(f.Name); m.state.folderFails(m.dir) || slices.Contains(m.state.failing, name) {
			m.state.recalled = append(m.state.recalled, name)
		}
	}
	m.mu.Unlock()
	for _, name := range m.today().recalled {
		f := saved[name]
		m.log.Error("a mapping file is in force as the state topic has it", "file", name, "team", f.Team, "since", f.Since, "by", f.By)
	}
	m.changed()
	m.log.Info("mappings in force", "fingerprint", set.Fingerprint(), "files", len(set.Files()))
	return nil
}

// lastGood makes sets of what the topic says: of what was in force, and of that and what was before it was gone, in so far as
// nothing of it is another's now.
func (m *mappings) lastGood(saved map[string]changelog.SavedMapping) (live, all *mapping.Set) {
	var there, gone []*mapping.File
	for _, s := range saved {
		if s.Err != nil {
			m.log.Error("what a mapping file was when it was last good cannot be read", "file", s.Name, "error", s.Err)
			continue
		}
		f, problems := mapping.Parse(filepath.Join(m.dir, s.Name), []byte(s.Text))
		if f == nil { // its language was another version's
			m.log.Error("a mapping file that was last good is wrong for this version: it cannot stand in for the file", "file", s.Name, "problem", problems[0].String())
			continue
		}
		if s.Gone.IsZero() {
			there = append(there, f)
		} else {
			gone = append(gone, f)
		}
	}
	newest := func(a, b *mapping.File) int {
		x, y := saved[filepath.Base(a.Name)], saved[filepath.Base(b.Name)]
		return -x.Since.Compare(y.Since)
	}
	slices.SortFunc(there, newest)
	slices.SortFunc(gone, newest)
	live, _ = mapping.NewSet(nil)
	live = joined(live, there)
	return live, joined(live, gone)
}

// joined adds files to a set, but for those that contradict it, or one before them.
func joined(set *mapping.Set, files []*mapping.File) *mapping.Set {
	if all, problems := mapping.NewSet(append(slices.Clone(set.Files()), files...)); len(problems) == 0 {
		return all
	}
	for _, f := range files {
		if more, problems := mapping.NewSet(append(slices.Clone(set.Files()), f)); len(problems) == 0 {
			set = more
		}
	}
	return set
}

// changed asks for what is in force to be written down.
func (m *mappings) changed() {
	select {
	case m.unsaved <- struct{}{}:
	default:
	}
}

// saver is what a process knows of its writes to the state topic.
type saver struct {
	large   map[string]bool   // texts that were told to be too large
	settled map[string]string // by file: what stood on the topic and in force here
}

func newSaver(saved map[string]changelog.SavedMapping) *saver {
	s := &saver{large: map[string]bool{}, settled: map[string]string{}}
	for name, f := range saved {
		s.settled[name] = f.Text
	}
	return s
}

// save writes down what is in force, each time that it changes and now and then, until ctx ends. A topic that cannot be written is
// tried again.
func (m *mappings) save(ctx context.Context) {
	saved, backoff := m.saved, lastGoodBackoffMin
	s := newSaver(saved)
	var again <-chan time.Time
	for {
		if again == nil {
			again = time.After(m.saveEvery/2 + rand.N(m.saveEvery))
		}
		select {
		case <-ctx.Done():
			return
		case <-m.unsaved:
		case <-again:
		}
		err := m.saveOver(ctx, saved, s)
		saved, again = nil, nil // others write too: it is read anew
		if err == nil {
			backoff = lastGoodBackoffMin
			continue
		}
		if ctx.Err() != nil {
			return
		}
		m.log.Warn("writing down which mappings are good: until this works, a process that starts with a broken file has its older form, or none", "error", err, "again_in", backoff)
		again = time.After(backoff)
		backoff = min(2*backoff, lastGoodBackoffMax)
	}
}

// saveOver makes the topic say what is in force. saved is what it says now; nil: it is asked.
func (m *mappings) saveOver(ctx context.Context, saved map[string]changelog.SavedMapping, s *saver) error {
	today := m.today()
	if saved == nil {
		st, err := m.store.Load(ctx)
		if err != nil {
			return err
		}
		saved = st.LoadMappings(m.fleet)
		if m.archive != nil {
			if err := m.archive.upkeep(ctx, today.set, st); err != nil {
				return err
			}
		}
	}
	host, _ := os.Hostname()
	kept := map[string]bool{}
	var failed []error
	for _, f := range today.set.Files() {
		name := filepath.Base(f.Name)
		kept[name] = true
		was := saved[name]
		if m.saidOf(f, was, today, s) || s.large[f.Text()] {
			continue
		}
		now := changelog.MappingFile{Name: name, Team: f.Team, Text: f.Text(), Since: today.since, By: host}
		err := m.store.PutMapping(ctx, m.fleet, now, was)
		if errors.Is(err, changelog.ErrTooLarge) {
			s.large[now.Text] = true
			m.log.Error("a mapping file is too large to be written down: a process that starts while it is broken leaves it out (make it several files)", "file", name, "bytes", len(now.Text))
			continue
		}
		if err == nil {
			s.settled[name] = now.Text
		}
		failed = append(failed, err)
	}
	if !today.folderFails(m.dir) { // what is missing in it was taken out
		for name, was := range saved {
			if !kept[name] && !slices.Contains(today.failing, name) {
				failed = append(failed, m.saveGone(ctx, was, host))
			}
		}
	}
	return errors.Join(failed...)
}

// saidOf reports whether the topic says what it should of a file in force. One that is in force in spite of the folder, and was
// written down already, says nothing against what others have written since.
func (m *mappings) saidOf(f *mapping.File, was changelog.SavedMapping, today mappingsState, s *saver) bool {
	if was.Generation == 0 || was.Err != nil {
		return false
	}
	gone := !was.Gone.IsZero()
	if !gone && was.Text == f.Text() {
		s.settled[was.Name] = was.Text
		return true
	}
	inSpite := today.folderFails(m.dir) || !gone && slices.Contains(today.failing, was.Name)
	return inSpite && s.settled[was.Name] == f.Text()
}

// saveGone notes that a file is in force no more, and forgets one that has not been for long.
func (m *mappings) saveGone(ctx context.Context, was changelog.SavedMapping, host string) error {
	switch {
	case was.Err != nil: // a newer version's, who knows what to do with it
		return nil
	case was.Gone.IsZero():
		now := was.MappingFile
		now.Gone, now.By = time.Now(), host
		return m.store.PutMapping(ctx, m.fleet, now, was)
	case time.Since(was.Gone) > goneKept:
		return m.store.RemoveMapping(ctx, m.fleet, was)
	}
	return nil
}
