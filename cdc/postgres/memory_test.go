package postgres

import (
	"strings"
	"testing"
)

// tablesOf makes tables of lines "name oid [member=N] [root=N] [links=X] [born] [unpublished]".
func tablesOf(t *testing.T, lines ...string) []tableInfo {
	t.Helper()
	number := func(s string) (n uint32) {
		for _, r := range s {
			n = n*10 + uint32(r-'0')
		}
		return n
	}
	var tables []tableInfo
	for _, line := range lines {
		f := strings.Fields(line)
		x := tableInfo{Schema: "s", Table: f[0], OID: number(f[1]), Published: true}
		for _, word := range f[2:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "member":
				x.Member, x.Listed = number(value), true
			case "root":
				x.Root, x.Partition = number(value), true
			case "links":
				x.Links = value
			case "born":
				x.Born = true
			case "unpublished":
				x.Published, x.Listed = false, false
			default:
				t.Fatal(word)
			}
		}
		tables = append(tables, x)
	}
	return tables
}

func TestCompare(t *testing.T) {
	all := func(tableName) bool { return true }
	for _, c := range []struct {
		what, gone, joined string
		before, after      []string
	}{
		{what: "nothing", before: []string{"u 1 member=10"}, after: []string{"u 1 member=10"}},
		{what: "the first look", after: []string{"u 1 member=10"}},
		{what: "a new table", joined: "v", before: []string{"u 1 member=10"}, after: []string{"u 1 member=10", "v 2 member=11"}},
		{what: "a new table that is not published", before: []string{"u 1 member=10"}, after: []string{"u 1 member=10", "v 2 unpublished"}},
		{what: "dropped", gone: "u", before: []string{"u 1 member=10", "v 2 member=11"}, after: []string{"v 2 member=11"}},
		{what: "dropped and made anew, not yet published", gone: "u", before: []string{"u 1 member=10"}, after: []string{"u 3 unpublished"}},
		{what: "dropped and made anew, published", gone: "u", joined: "u", before: []string{"u 1 member=10"}, after: []string{"u 3 member=12"}},
		{what: "renamed", gone: "w u", before: []string{"u 1 member=10"}, after: []string{"w 1 member=10"}},
		{what: "swapped, both published", gone: "u v", before: []string{"u 1 member=10", "v 2 member=11"}, after: []string{"u 2 member=11", "v 1 member=10"}},
		{what: "left the publication", before: []string{"u 1 member=10"}, after: []string{"u 1 unpublished"}},
		{what: "left the publication and came back", joined: "u", before: []string{"u 1 member=10"}, after: []string{"u 1 member=12"}},
		{what: "a partition made", before: []string{"p 1 member=10"}, after: []string{"p 1 member=10", "p1 2 root=1 links=7 born"}},
		{what: "a partition attached", joined: "p1", before: []string{"p 1 member=10"}, after: []string{"p 1 member=10", "p1 2 root=1 links=7"}},
		{what: "a partition made, of a table that is new itself", joined: "p p1", before: []string{"u 3 member=9"},
			after: []string{"u 3 member=9", "p 1 member=10", "p1 2 root=1 links=7 born"}},
		{what: "a partition detached", gone: "p1", before: []string{"p 1 member=10", "p1 2 root=1 links=7"}, after: []string{"p 1 member=10", "p1 2 unpublished"}},
		{what: "a partition detached that is listed itself", gone: "p1", before: []string{"p1 2 root=1 links=7 member=5"}, after: []string{"p1 2 member=5"}},
		{what: "a partition detached and attached again", gone: "p1", joined: "p1", before: []string{"p 1 member=10", "p1 2 root=1 links=7 born"}, after: []string{"p 1 member=10", "p1 2 root=1 links=8"}},
	} {
		m := &memory{}
		if c.before != nil {
			m.compare(tablesOf(t, c.before...), all)
		}
		m = parseMemories(memories{"s": m}.comment()).of("s") // as the publication keeps it
		after := tablesOf(t, c.after...)
		d := m.compare(after, all)
		var gone, joined []string
		for _, n := range d.gone {
			gone = append(gone, n[1])
		}
		for _, x := range d.joined {
			joined = append(joined, x.Table)
		}
		if got := strings.Join(gone, " "); got != c.gone {
			t.Errorf("%s: gone %q, want %q", c.what, got, c.gone)
		}
		if got := strings.Join(joined, " "); got != c.joined {
			t.Errorf("%s: joined %q, want %q", c.what, got, c.joined)
		}
		if d := m.compare(after, all); len(d.gone)+len(d.joined) > 0 {
			t.Errorf("%s: told again: %+v", c.what, d)
		}
	}
}

// Behind the name of a table that left the publication another may stand later, of which every change was fed under its own name.
func TestCompareOfATableThatTookTheNameOfOneThatLeft(t *testing.T) {
	m, all := &memory{}, func(tableName) bool { return true }
	m.compare(tablesOf(t, "u 1 member=10", "v 2 member=11"), all)
	m.compare(tablesOf(t, "u 1 unpublished", "v 2 member=11"), all)
	d := m.compare(tablesOf(t, "u 2 member=11", "v 1 unpublished"), all)
	if len(d.gone) != 2 || d.gone[0][1] != "u" || d.gone[1][1] != "v" || len(d.joined) > 0 {
		t.Errorf("%+v", d)
	}
}

// A table that is included again was not fed in between.
func TestCompareForgetsWhatIsNotIncluded(t *testing.T) {
	m := &memory{}
	both, one := tablesOf(t, "u 1 member=10", "v 2 member=11"), tablesOf(t, "u 1 member=10")
	m.compare(both, func(tableName) bool { return true })
	if d := m.compare(one, func(n tableName) bool { return n[1] == "u" }); len(d.gone)+len(d.joined) > 0 {
		t.Errorf("%+v", d)
	}
	if d := m.compare(both, func(tableName) bool { return true }); len(d.gone) > 0 || len(d.joined) != 1 || d.joined[0].Table != "v" {
		t.Errorf("%+v", d)
	}
}

func TestMemoriesOfAForeignComment(t *testing.T) {
	for _, comment := range []string{"", publicationComment, publicationComment + "\nnonsense", publicationComment + "\nnull", publicationComment + "\n{\"s\":null}"} {
		if m := parseMemories(comment).of("s"); m.Tables != nil {
			t.Errorf("%q: %+v", comment, m)
		}
	}
	if p := (&publicationInfo{Comment: publicationComment + "\n{}"}); !p.ours() {
		t.Error("a publication of ours is not known")
	}
	if p := (&publicationInfo{Comment: "somebody's"}); p.ours() {
		t.Error("somebody's publication is taken for ours")
	}
}
