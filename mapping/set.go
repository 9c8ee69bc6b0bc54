package mapping

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"invalidator/cdc"
)

// cachedTables bounds what a Set remembers of the tables it was asked about, mapped or not: a topic pattern may bring any
// number. A table beyond it is looked up among the mappings each time, which is slower and gives the same plan.
const cachedTables = 4096

// Set is every mapping in force. It is immutable to its users and safe for concurrent use. It implements Mapper.
type Set struct {
	files       []*File
	mappings    []*Mapping
	messages    map[string]sentUnder // what keys in logical messages come under, by pool
	keys        map[string]sentUnder // what keys on the topic of keys come under, by pool
	fingerprint string

	tables atomic.Pointer[map[table]*Plan] // replaced, never written
	mu     sync.Mutex                      // one at a time replaces tables and adds to plans
	plans  map[string]*Plan                // which mappings -> their one plan, whatever tables share it
}

type table struct {
	source string
	id     cdc.TableID
}

var _ Mapper = (*Set)(nil)

// Load reads every *.yaml and *.yml file of a folder. A file with an error is left out alone; the problems say why. The
// error is for a folder that cannot be read. What follows a set that is in force is Reload's.
func Load(dir string) (*Set, []Problem, error) {
	texts, err := readFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	var files []*File
	var problems []Problem
	for _, t := range texts {
		f, ps := t.parse()
		problems = append(problems, ps...)
		if f != nil {
			files = append(files, f)
		}
	}
	if len(texts) == 0 {
		problems = append(problems, nothingMapped(dir))
	}
	set, ps := NewSet(files)
	problems = append(problems, ps...)
	sortProblems(problems)
	return set, problems, nil
}

// LoadFile reads one file. The File is nil where a problem is an error.
func LoadFile(name string) (*File, []Problem) { return readText(name).parse() }

const noFile = "the folder has no *.yaml file"

func nothingMapped(dir string) Problem {
	return Problem{File: dir, Severity: SeverityWarning, What: noFile + ": nothing is mapped"}
}

// content is a file as it was read.
type content struct {
	name string // a path
	data []byte
	err  error
}

func readText(name string) content {
	data, err := os.ReadFile(name)
	return content{name, data, err}
}

func (t content) parse() (*File, []Problem) {
	if t.err != nil {
		return nil, []Problem{{File: t.name, Severity: SeverityError, What: fmt.Sprintf("reading the file: %v", t.err)}}
	}
	return Parse(t.name, t.data)
}

// readFolder reads a folder's mapping files, by name.
func readFolder(dir string) ([]content, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the mappings folder: %w", err)
	}
	var texts []content
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != ".yaml" && ext != ".yml" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		texts = append(texts, readText(filepath.Join(dir, e.Name())))
	}
	return texts, nil
}

// NewSet puts files together. One that contradicts a file whose name sorts before it is left out.
func NewSet(files []*File) (*Set, []Problem) {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *File) int { return strings.Compare(filepath.Base(a.Name), filepath.Base(b.Name)) })
	s := &Set{plans: map[string]*Plan{}, messages: map[string]sentUnder{}, keys: map[string]sentUnder{}}
	s.tables.Store(&map[table]*Plan{})
	var problems []Problem
	for _, f := range files {
		ps := contradictions(f, s.files)
		problems = append(problems, ps...)
		if len(ps) == 0 {
			s.files = append(s.files, f)
			s.mappings = append(s.mappings, f.Mappings...)
			maps.Copy(s.messages, f.sentTemplates(textOfMessage))
			maps.Copy(s.keys, f.sentTemplates(textOfKey))
		}
	}
	s.fingerprint = fingerprint(s.files)
	return s, problems
}

// fingerprint is over names and contents, not over the folder, so that every worker of a fleet says the same.
func fingerprint(files []*File) string {
	h := sha256.New()
	for _, f := range files {
		for _, b := range [][]byte{[]byte(filepath.Base(f.Name)), f.data} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
			h.Write(b)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Fingerprint names the set.
func (s *Set) Fingerprint() string { return s.fingerprint }

// Files are those in force, by name. The caller must not change them.
func (s *Set) Files() []*File { return s.files }

// Templates are those of all files in force.
func (s *Set) Templates() []*Template {
	var all []*Template
	for _, m := range s.mappings {
		all = append(all, m.Templates...)
	}
	return all
}

// Underivable are the pools whose keys no row gives, of all files in force, sorted.
func (s *Set) Underivable() []string {
	var all []string
	for _, f := range s.files {
		all = append(all, f.Underivable...)
	}
	slices.Sort(all)
	return all
}

// Columns are those that the templates of a table read, with the types that mappings declare; nil where nobody maps it. An empty
// Table is any table of its Schema.
func (s *Set) Columns(source string, t cdc.TableID) *cdc.Columns {
	if p := s.Plan(source, t); p != nil {
		return p.Columns
	}
	return nil
}

// Plan is what is done with the rows of a table; nil where nobody maps it. The same table always has the same plan. That of an
// empty Table has the templates of all that may be in its Schema, for a truncate of them.
func (s *Set) Plan(source string, t cdc.TableID) *Plan {
	tables := *s.tables.Load()
	if p, ok := tables[table{source, t}]; ok {
		return p
	}
	var key []byte
	var covering []*Mapping
	for i, m := range s.mappings {
		if m.covers(source, t.Database, t.Schema, t.Table) {
			covering = append(covering, m)
			key = binary.AppendUvarint(key, uint64(i))
		}
	}
	if len(covering) == 0 && len(tables) >= cachedTables {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var p *Plan
	if len(covering) > 0 {
		if p = s.plans[string(key)]; p == nil {
			p = compile(covering)
			s.plans[string(key)] = p
		}
	}
	if tables := *s.tables.Load(); len(tables) < cachedTables {
		more := maps.Clone(tables)
		more[table{strings.Clone(source), cdc.TableID{Database: strings.Clone(t.Database), Schema: strings.Clone(t.Schema), Table: strings.Clone(t.Table)}}] = p
		s.tables.Store(&more)
	}
	return p
}
