package mapping

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// Reload reads the folder of a set that is in force, and returns the set to come after it: s itself where nothing is to change.
//
// A file that fails keeps its last good form in force; the other files go in, and a file that is gone leaves. One that
// contradicts others fails too: a pool stays with the file that has it in force, whatever another one, changed or new, claims.
// So no file is put out by another's mistake. The problems are those of the whole folder, each time.
//
// The error is a folder that cannot be read, or has no file any more, which is no decision of anybody to map nothing: s stays.
func (s *Set) Reload(dir string) (*Set, []Problem, error) {
	texts, err := readStill(func() ([]content, error) { return readFolder(dir) })
	if err != nil {
		return s, nil, err
	}
	if len(texts) == 0 {
		if len(s.files) > 0 {
			return s, nil, errors.New(noFile + " any more (is it mounted? To map nothing, stop the workers)")
		}
		return s, []Problem{nothingMapped(dir)}, nil
	}
	next, problems := s.next(texts)
	return next, problems, nil
}

// readAttempts bounds how often a folder is read that changes all the time.
const readAttempts = 5

// readStill reads until two reads in a row agree, so that a folder that is replaced at one stroke while it is read is not taken
// half old and half new: a pool that moves from one file to another would be nobody's.
func readStill(read func() ([]content, error)) ([]content, error) {
	last, err := read()
	for range readAttempts - 1 {
		if err != nil {
			return nil, err
		}
		var now []content
		now, err = read()
		if err == nil && slices.EqualFunc(last, now, content.equal) {
			return now, nil
		}
		last = now
	}
	if err != nil {
		return nil, err
	}
	return nil, errors.New("the mappings folder changes faster than it can be read")
}

func (t content) equal(o content) bool {
	return t.name == o.name && (t.err == nil) == (o.err == nil) && bytes.Equal(t.data, o.data)
}

// candidate is a file of the folder, and what of it may be in force.
type candidate struct {
	good *File // in force under the set before; nil: nothing
	next *File // to be in force; nil: nothing
}

// fresh is what is not in force yet.
func (c *candidate) fresh() bool { return c.next != nil && c.next != c.good }

// next is the set of a folder's texts that comes after s.
func (s *Set) next(texts []content) (*Set, []Problem) {
	good := map[string]*File{}
	for _, f := range s.files {
		good[filepath.Base(f.Name)] = f
	}
	var problems []Problem
	cs := make([]*candidate, len(texts))
	for i, t := range texts {
		c := &candidate{good: good[filepath.Base(t.name)]}
		cs[i] = c
		if c.good != nil && t.err == nil && bytes.Equal(t.data, c.good.data) {
			c.next = c.good
			problems = append(problems, c.good.problems...)
			continue
		}
		f, ps := t.parse()
		problems = append(problems, ps...)
		if c.next = f; f == nil {
			c.next = c.good
		}
	}
	problems = append(problems, giveWay(cs)...)
	sortProblems(problems)
	var files []*File
	for _, c := range cs {
		if c.next != nil {
			files = append(files, c.next)
		}
	}
	if slices.Equal(files, s.files) {
		return s, problems
	}
	next, _ := NewSet(files) // they contradict nobody
	return next, problems
}

// giveWay takes fresh files back, one at a time, until none contradicts another. It ends with what was in force at the latest,
// which was free of contradictions.
func giveWay(cs []*candidate) (problems []Problem) {
	for {
		loser, ps := contradicting(cs)
		if loser == nil {
			return problems
		}
		loser.next = loser.good
		problems = append(problems, ps...)
	}
}

// contradicting is a fresh file to take back, and why; nil where there is none. What stands in force is never one.
func contradicting(cs []*candidate) (*candidate, []Problem) {
	var fresh []*candidate
	var standing []*File
	for _, c := range cs {
		if c.fresh() {
			fresh = append(fresh, c)
		} else if c.next != nil {
			standing = append(standing, c.next)
		}
	}
	for _, c := range fresh {
		if ps := contradictions(c.next, standing); len(ps) > 0 {
			return c, ps
		}
	}
	for i, a := range fresh {
		for _, b := range fresh[i+1:] {
			ps := contradictions(b.next, []*File{a.next})
			if len(ps) == 0 {
				continue
			}
			// The one that takes what the other has in force; else the later name, as in NewSet.
			if a.intrudes(b) && !b.intrudes(a) {
				return a, contradictions(a.next, []*File{b.next})
			}
			return b, ps
		}
	}
	return nil, nil
}

// intrudes reports whether c contradicts what o has in force.
func (c *candidate) intrudes(o *candidate) bool {
	return o.good != nil && len(contradictions(c.next, []*File{o.good})) > 0
}

// FileChange is what a reload did to a file.
type FileChange struct {
	File, Team string
	How        string // added, changed, removed
}

func (c FileChange) String() string { return c.File + " of " + c.Team + " " + c.How }

// Since says in which files s differs from the set before, by name.
func (s *Set) Since(before *Set) []FileChange {
	old := map[string]*File{}
	for _, f := range before.files {
		old[filepath.Base(f.Name)] = f
	}
	var out []FileChange
	for _, f := range s.files {
		name := filepath.Base(f.Name)
		switch o := old[name]; {
		case o == nil:
			out = append(out, FileChange{name, f.Team, "added"})
		case !bytes.Equal(o.data, f.data):
			out = append(out, FileChange{name, f.Team, "changed"})
		}
		delete(old, name)
	}
	for name, f := range old {
		out = append(out, FileChange{name, f.Team, "removed"})
	}
	slices.SortFunc(out, func(a, b FileChange) int { return strings.Compare(a.File, b.File) })
	return out
}
