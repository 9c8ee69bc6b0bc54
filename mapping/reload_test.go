package mapping

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// after puts folders in force, one after another, and returns the last set with the files that the last reload blames.
func after(folders ...map[string]string) (s *Set, blamed []string) {
	s, _ = NewSet(nil)
	for _, f := range folders {
		var problems []Problem
		s, problems = s.next(contents(f))
		blamed = nil
		for _, p := range problems {
			if p.Severity == SeverityError {
				blamed = append(blamed, p.File)
			}
		}
	}
	return s, slices.Compact(blamed)
}

func contents(folder map[string]string) []content {
	var out []content
	for name, data := range folder {
		t := content{name: name, data: []byte(data)}
		if data == "unreadable" {
			t.data, t.err = nil, os.ErrPermission
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b content) int { return strings.Compare(a.name, b.name) })
	return out
}

// inForce are the pools in force, as file:pools.
func inForce(s *Set) string {
	var out []string
	for _, f := range s.Files() {
		out = append(out, f.Name+":"+strings.Join(f.Pools, "+"))
	}
	return strings.Join(out, " ")
}

func claiming(pools ...string) string {
	return fmt.Sprintf("version: 1\nteam: t\npools: [%s]\n", strings.Join(pools, ", "))
}

// What a reload puts in force, by what stood before.
func TestReload(t *testing.T) {
	a, b := claiming("a"), claiming("b")
	for _, test := range []struct {
		name         string
		before, then map[string]string
		want         string
		blamed       string // files that are told to be in error
	}{
		{"a new file goes in", map[string]string{"a": a}, map[string]string{"a": a, "b": b}, "a:a b:b", ""},
		{"a file that is gone leaves", map[string]string{"a": a, "b": b}, map[string]string{"b": b}, "b:b", ""},
		{"a renamed file keeps its pools", map[string]string{"a": a, "b": b}, map[string]string{"c": a, "b": b}, "b:b c:a", ""},
		{"a broken file stays as it was, others go in", map[string]string{"a": a, "b": b}, map[string]string{"a": "pools: 3", "b": claiming("b", "x")}, "a:a b:b+x", "a"},
		{"an unreadable file stays as it was", map[string]string{"a": a}, map[string]string{"a": "unreadable", "b": b}, "a:a b:b", "a"},
		{"a broken new file is left out", map[string]string{"a": a}, map[string]string{"a": a, "b": "x"}, "a:a", "b"},
		{"a new file takes no pool in force, though its name sorts first", map[string]string{"b": b}, map[string]string{"a": claiming("b"), "b": b}, "b:b", "a"},
		{"nor while its owner changes", map[string]string{"b": b}, map[string]string{"a": claiming("b"), "b": claiming("b", "x")}, "b:b+x", "a"},
		{"nor that of a file that is broken now", map[string]string{"b": b}, map[string]string{"a": claiming("b"), "b": "x"}, "b:b", "a b"},
		{"a changed file takes no pool in force and stays as it was", map[string]string{"a": a, "b": b}, map[string]string{"a": claiming("a", "b"), "b": b}, "a:a b:b", "a"},
		{"nor while its owner changes", map[string]string{"a": a, "b": b}, map[string]string{"a": claiming("a", "b"), "b": claiming("b", "x")}, "a:a b:b+x", "a"},
		{"a pool moves", map[string]string{"a": claiming("a", "x"), "b": b}, map[string]string{"a": a, "b": claiming("b", "x")}, "a:a b:b+x", ""},
		{"two files swap pools", map[string]string{"a": a, "b": b}, map[string]string{"a": b, "b": a}, "a:b b:a", ""},
		{"a pool does not move from a broken file", map[string]string{"a": claiming("a", "x"), "b": b}, map[string]string{"a": "x", "b": claiming("b", "x")}, "a:a+x b:b", "a b"},
		{"a pool that is free goes to the first name", map[string]string{"a": a, "b": b}, map[string]string{"a": claiming("a", "x"), "b": claiming("b", "x")}, "a:a+x b:b", "b"},
		{"who is taken back stands in nobody's way but its own", map[string]string{"a": a, "b": b, "c": claiming("c")},
			map[string]string{"a": claiming("a", "x", "c"), "b": claiming("b", "x"), "c": claiming("c")}, "a:a b:b+x c:c", "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, blamed := after(test.before, test.then)
			if got := inForce(s); got != test.want {
				t.Errorf("in force %s, want %s", got, test.want)
			}
			if got := strings.Join(blamed, " "); got != test.blamed {
				t.Errorf("blamed: %s, want %s", got, test.blamed)
			}
		})
	}
}

// The same folder gives the same set, and a file that did not change is the same file.
func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	s, _ := after(map[string]string{"a": claiming("a"), "b": claiming("b")})
	same, problems := s.next(contents(map[string]string{"a": claiming("a"), "b": claiming("b")}))
	if same != s || len(problems) != 2 { // pools that no key is in: warnings are told each time
		t.Errorf("another set, or not the problems of all: %q", problems)
	}
	next, _ := s.next(contents(map[string]string{"a": claiming("a"), "b": claiming("x")}))
	if next.Files()[0] != s.Files()[0] || next.Fingerprint() == s.Fingerprint() {
		t.Error("file a did not change, and the set did")
	}
	back, _ := next.next(contents(map[string]string{"a": claiming("a"), "b": claiming("b")}))
	if back.Fingerprint() != s.Fingerprint() {
		t.Error("the same files have another fingerprint")
	}
	if got := fmt.Sprint(back.Since(next), s.Since(back)); got != "[b of t changed] []" {
		t.Errorf("differences %s", got)
	}
	none, _ := NewSet(nil)
	if got := fmt.Sprint(s.Since(none), none.Since(s)); got != "[a of t added b of t added] [a of t removed b of t removed]" {
		t.Errorf("differences %s", got)
	}
}

// A folder that is not there, or is empty, is no decision to map nothing.
func TestReloadOfNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(claiming("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "a.yaml"))
	if next, _, err := s.Reload(dir); next != s || err == nil {
		t.Errorf("an empty folder: %v", err)
	}
	os.Remove(dir)
	if next, _, err := s.Reload(dir); next != s || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// A folder that is replaced while it is read gives its old files or its new ones, never some of each.
func TestReadStill(t *testing.T) {
	older, newer := contents(map[string]string{"a": "1", "b": "1"}), contents(map[string]string{"a": "2", "b": "2"})
	half := []content{older[0], newer[1]}
	reads := [][]content{half, newer, newer}
	read := func() ([]content, error) {
		r := reads[0]
		reads = reads[1:]
		return r, nil
	}
	got, err := readStill(read)
	if err != nil || !slices.EqualFunc(got, newer, content.equal) {
		t.Errorf("got %v %v", got, err)
	}
	n := 0
	if got, err := readStill(func() ([]content, error) { n++; return contents(map[string]string{"a": fmt.Sprint(n)}), nil }); err == nil {
		t.Errorf("a folder that never holds still gave %v", got)
	}
}

// Whatever the folders, the set has no contradiction; a file in force stays until it changes or is gone; and a file that
// contradicts nobody, neither what stands nor what comes, goes in.
func TestReloadKeepsOwners(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	folder := rapid.Custom(func(t *rapid.T) map[string]string {
		f := map[string]string{}
		for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "names") {
			pools := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r", "s"}), 0, 3, rapid.ID).Draw(t, "pools")
			if f[n] = claiming(pools...); len(pools) == 0 {
				f[n] = "broken"
			}
		}
		return f
	})
	rapid.Check(t, func(t *rapid.T) {
		s, _ := NewSet(nil)
		for _, f := range rapid.SliceOfN(folder, 1, 6).Draw(t, "folders") {
			next, problems := s.next(contents(f))
			if _, ps := NewSet(next.Files()); HasErrors(ps) {
				t.Fatalf("the set contradicts itself: %v", ps)
			}
			good := map[string]*File{}
			for _, g := range s.Files() {
				good[g.Name] = g
			}
			blamed := map[string]bool{}
			for _, p := range problems {
				blamed[p.File] = blamed[p.File] || p.Severity == SeverityError
			}
			for name, data := range f {
				i := slices.IndexFunc(next.Files(), func(g *File) bool { return g.Name == name })
				switch {
				case good[name] != nil && i < 0:
					t.Fatalf("%s was put out: %s, then %s", name, inForce(s), inForce(next))
				case good[name] != nil && string(good[name].data) == data && next.Files()[i] != good[name]:
					t.Fatalf("%s did not change", name)
				case i < 0 && !blamed[name], i >= 0 && string(next.Files()[i].data) != data && !blamed[name]:
					t.Fatalf("%s is not in force, and no error says why: %v", name, problems)
				case blamed[name] && i >= 0 && string(next.Files()[i].data) == data:
					t.Fatalf("%s is in force, and blamed: %v", name, problems)
				case blamed[name] && data != "broken" && !contested(f, s, name):
					t.Fatalf("%s claims nobody's pool, and is blamed: %v", name, problems)
				}
			}
			s = next
		}
	})
}

// contested reports whether a file of the folder claims a pool that another one of it claims, or has in force.
func contested(folder map[string]string, s *Set, name string) bool {
	mine, _ := Parse(name, []byte(folder[name]))
	for other, data := range folder {
		if other == name {
			continue
		}
		theirs, _ := Parse(other, []byte(data))
		for _, f := range append(s.Files(), theirs) {
			if f != nil && f.Name == other && slices.ContainsFunc(mine.Pools, func(p string) bool { return f.claims[p] != nil }) {
				return true
			}
		}
	}
	return false
}
