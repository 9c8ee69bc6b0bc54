package mapping

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// Readers says what the clients of a file's pools speak.
type Readers string

const (
	ReadersClassic Readers = "classic" // the default
	ReadersMeta    Readers = "meta"
)

// File is one team's file, read and checked. It is immutable.
type File struct {
	Name        string // as it was given: a path
	Team        string
	Contact     string // whom to tell; may be empty
	Pools       []string
	Underivable []string // pools whose keys no row gives
	Readers     Readers
	Base64Keys  bool // binary_keys: clients send keys with spaces and control bytes in base64
	Mappings    []*Mapping
	Tests       []*Test

	data     []byte
	problems []Problem             // warnings
	storms   map[string]stormSaid  // by pool
	claims   map[string]*yaml.Node // pool -> where it is claimed
	binary   *yaml.Node            // binary_keys; nil without

	promotions map[string]OnPromotion // by underivable pool
}

// Text is what the file was read from.
func (f *File) Text() string { return string(f.data) }

// Mapping says which keys the rows of some tables feed.
type Mapping struct {
	Name      string
	Tables    []string          // schema.table, compared exactly; with * ? [ it is a pattern of path.Match
	Source    string            // empty: any
	Database  string            // empty: any
	Types     map[string]string // declared column types, lower case
	Templates []*Template

	OnTruncate OnTruncate // what becomes of the keys that a truncate does not name

	file         string
	declared     map[string]*yaml.Node // column -> where its type is declared
	node         *yaml.Node
	saysTruncate bool // the file has on_truncate
}

// covers reports whether the mapping is about a table. A source or database that is not known (a tombstone names
// neither) narrows nothing: a delete too many is harmless. An empty table asks for any table of the schema.
func (m *Mapping) covers(source, database, schema, table string) bool {
	if m.Source != "" && source != "" && m.Source != source ||
		m.Database != "" && database != "" && m.Database != database {
		return false
	}
	return slices.ContainsFunc(m.Tables, func(name string) bool { return matches(name, schema, table) })
}

// matches compares without joining, for it is asked on the hot path of tables that nobody maps.
func matches(name, schema, table string) bool {
	if table == "" {
		return mayMatchSame(name, literally.Replace(schema)+".*")
	}
	if isPattern(name) {
		ok, _ := path.Match(name, schema+"."+table)
		return ok
	}
	return len(name) == len(schema)+1+len(table) && name[:len(schema)] == schema && name[len(schema)] == '.' && name[len(schema)+1:] == table
}

// literally makes a pattern of a text that matches it alone.
var literally = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// fileReader builds a File.
type fileReader struct {
	reader
	f *File
}

// Parse reads the text of one file. The File is nil where a problem is an error.
func Parse(name string, data []byte) (*File, []Problem) {
	r := &fileReader{reader: reader{file: name}, f: &File{Name: name, Readers: ReadersClassic, data: data, claims: map[string]*yaml.Node{}}}
	if root := r.document(data); root != nil {
		r.read(root)
	}
	sortProblems(r.problems)
	if HasErrors(r.problems) {
		return nil, r.problems
	}
	r.f.problems = r.problems
	return r.f, r.problems
}

func (r *fileReader) read(root *yaml.Node) {
	var mappings, tests, storms, promotions *yaml.Node
	r.object(root, "a mapping file", []field{
		{name: "version", required: true, read: func(n *yaml.Node) {
			if n.Tag != "!!int" || n.Value != "1" {
				r.errorf(n, "write version: 1", "the version must be 1, not %s", describe(n))
			}
		}},
		{name: "team", required: true, read: func(n *yaml.Node) { r.f.Team = r.word(n, "the team") }},
		{name: "contact", read: func(n *yaml.Node) { r.f.Contact, _ = r.text(n, "the contact") }},
		{name: "pools", read: func(n *yaml.Node) { r.f.Pools = r.pools(n, "pools") }},
		{name: "underivable", read: func(n *yaml.Node) { r.f.Underivable = r.pools(n, "underivable") }},
		{name: "readers", read: r.readers},
		{name: "binary_keys", read: r.binaryKeys},
		{name: "on_promotion", read: func(n *yaml.Node) { promotions = n }},
		{name: "storm", read: func(n *yaml.Node) { storms = n }},
		{name: "mappings", read: func(n *yaml.Node) { mappings = n }},
		{name: "tests", read: func(n *yaml.Node) { tests = n }},
	})
	r.checkBinaryKeys()
	// Keys, storms and promotions are checked against the pools, wherever in the file they stand.
	if promotions != nil {
		r.readPromotions(promotions)
	}
	if storms != nil {
		r.readStorms(storms)
	}
	if mappings != nil {
		for _, n := range r.list(mappings, "mappings", true) {
			r.mapping(n)
		}
	}
	if tests != nil {
		for _, n := range r.list(tests, "tests", true) {
			r.test(n)
		}
	}
	if HasErrors(r.problems) { // what follows would only echo them
		return
	}
	if len(r.f.claims) == 0 {
		r.errorf(root, "name them in pools, or in underivable", "the file claims no pool")
	}
	r.unused()
}

// word reads a name that may become a metric's label or part of a command.
func (r *reader) word(n *yaml.Node, what string) string {
	s, ok := r.text(n, what)
	if ok && strings.ContainsFunc(s, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_.", c)
	}) {
		r.errorf(n, "use letters, digits, - _ .", "%s has a character that names do not have: %q", what, s)
	}
	return s
}

func (r *fileReader) readers(n *yaml.Node) {
	s, ok := r.text(n, "readers")
	r.f.Readers = Readers(s)
	if ok && r.f.Readers != ReadersClassic && r.f.Readers != ReadersMeta {
		r.errorf(n, didYouMean(s, []string{string(ReadersClassic), string(ReadersMeta)}), "readers must be classic or meta, not %q", s)
	}
}

func (r *fileReader) pools(list *yaml.Node, what string) (names []string) {
	for _, n := range r.texts(list, what, "pool", false) {
		if i := strings.IndexFunc(n.Value, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune(":{}", c) }); i >= 0 {
			r.errorf(n, "a pool is what stands before a key's first :", "a pool has no %q in its name: %q", n.Value[i], n.Value)
			continue
		}
		if first := r.f.claims[n.Value]; first != nil {
			r.errorf(n, "", "pool %q is doubled: it stands in line %d already", n.Value, first.Line)
			continue
		}
		r.f.claims[n.Value] = n
		names = append(names, n.Value)
	}
	return names
}

// unused warns of pools that nothing invalidates.
func (r *fileReader) unused() {
	for _, p := range r.f.Pools {
		used := slices.ContainsFunc(r.f.Mappings, func(m *Mapping) bool {
			return slices.ContainsFunc(m.Templates, func(t *Template) bool { return t.Pool == p || t.Raw })
		})
		if !used {
			r.warnf(r.f.claims[p], "move it to underivable if no row gives its keys", "no key of this file is in pool %q", p)
		}
	}
}

func (r *fileReader) mapping(n *yaml.Node) {
	m := &Mapping{Types: map[string]string{}, OnTruncate: TruncateFlush, file: r.file, declared: map[string]*yaml.Node{}, node: n}
	var keys, table, tables *yaml.Node
	r.object(n, "a mapping", []field{
		{name: "name", required: true, read: func(n *yaml.Node) {
			m.Name = r.word(n, "the mapping's name")
			if i := slices.IndexFunc(r.f.Mappings, func(o *Mapping) bool { return o.Name == m.Name }); i >= 0 {
				r.errorf(n, "", "mapping %q is doubled: it stands in line %d already", m.Name, r.f.Mappings[i].node.Line)
			}
		}},
		{name: "table", read: func(n *yaml.Node) { table = n }},
		{name: "tables", read: func(n *yaml.Node) { tables = n }},
		{name: "source", read: func(n *yaml.Node) { m.Source, _ = r.text(n, "the source") }},
		{name: "database", read: func(n *yaml.Node) { m.Database, _ = r.text(n, "the database") }},
		{name: "columns", read: func(n *yaml.Node) { r.columns(n, m) }},
		{name: "on_truncate", read: func(n *yaml.Node) { m.OnTruncate, m.saysTruncate = r.onTruncate(n), true }},
		{name: "keys", required: true, read: func(n *yaml.Node) { keys = n }},
	})
	switch {
	case table != nil && tables != nil:
		r.errorf(tables, "", "table and tables exclude each other")
	case table != nil:
		if s, ok := r.text(table, "the table"); ok && r.tableName(table, s) {
			m.Tables = []string{s}
		}
	case tables != nil:
		for _, e := range r.texts(tables, "tables", "table", false) {
			if r.tableName(e, e.Value) {
				m.Tables = append(m.Tables, e.Value)
			}
		}
	case n.Kind == yaml.MappingNode:
		r.errorf(n, "write table: schema.table", "a mapping has no table")
	}
	entries := 0
	if keys != nil {
		for _, k := range r.list(keys, "keys", false) {
			entries++
			r.key(k, m)
		}
	}
	r.checkColumns(m, len(m.Templates) == entries)
	r.f.Mappings = append(r.f.Mappings, m)
}

func (r *reader) tableName(n *yaml.Node, name string) bool {
	schema, table, _ := strings.Cut(name, ".")
	if schema == "" || table == "" {
		r.errorf(n, "write schema.table; in MySQL the database is the schema", "%q is no table's name", name)
		return false
	}
	if _, err := path.Match(name, ""); err != nil {
		r.errorf(n, `* stands for any characters, ? for one, [a-z] for one of these, \* for a star`, "%q is no pattern", name)
		return false
	}
	return true
}

// within finds the place of a byte of a scalar's value: exact unless an escape stands before it.
func (r *reader) within(n *yaml.Node, at int) (line, col int) {
	value, start := n.Value, n.Column-1
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		start++
	}
	for line := n.Line; line >= 1 && line <= len(r.lines); line++ {
		raw := []rune(strings.TrimRight(string(r.lines[line-1]), "\r"))
		if line > n.Line { // a line of a text that goes over several, behind what it is indented by
			start = max(indent(string(raw))-indent(value), 0)
		} else if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			continue
		}
		here := string(raw[min(start, len(raw)):])
		same := min(len(commonPrefix(here, value)), len(value))
		if at <= same {
			return line, start + len([]rune(value[:at])) + 1
		}
		if same == 0 || same == len(value) || value[same] != ' ' && value[same] != '\n' {
			break
		}
		value, at = value[same+1:], at-same-1
	}
	return n.Line, n.Column
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }

// commonPrefix is what two texts begin with alike, in whole characters.
func commonPrefix(a, b string) string {
	for i, c := range a {
		if !strings.HasPrefix(b[min(i, len(b)):], string(c)) {
			return a[:i]
		}
	}
	return a
}
