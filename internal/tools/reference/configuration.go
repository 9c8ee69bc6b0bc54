package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"invalidator/internal/config"
)

// section is the keys of one struct of the configuration.
type section struct {
	paths []string // where it stands: "kafka"; several where one struct is used several times
	about string
	keys  []key
}

// key is one key.
type key struct{ name, kind, preset, about string }

// sample has each section once, so that its defaults can be read from what is loaded. What it says itself has none.
const sample = `
cache: {ring: {etcd: {endpoints: [a:1]}}}
sources:
  - {name: name, type: postgres, hosts: [a:1], user: u, database: d, include: [a.b]}
  - {name: topics, first_start: latest, topics: {pattern: a}}
`

// configuration reads the keys from the source of internal/config in dir, and their defaults from what it makes of sample.
func configuration(dir string) ([]section, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	r := &reader{structs: map[string]*ast.StructType{}, docs: map[string]string{}, at: map[string]int{}, presets: map[string]string{}}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		if err := r.parse(f); err != nil {
			return nil, err
		}
	}
	c, err := config.Parse("invalidator.yaml", []byte(sample))
	if err != nil {
		return nil, err
	}
	said := map[string]bool{}
	var tree yaml.Node
	if err := yaml.Unmarshal([]byte(sample), &tree); err != nil {
		return nil, err
	}
	noteSaid(said, "", &tree)
	r.notePresets(said, "", reflect.ValueOf(*c))
	if err := r.walk("Config", ""); err != nil {
		return nil, err
	}
	return r.sections, nil
}

type reader struct {
	structs  map[string]*ast.StructType
	docs     map[string]string
	presets  map[string]string // by path
	sections []section
	at       map[string]int // of a struct's section
}

func (r *reader) parse(file string) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			t := s.(*ast.TypeSpec)
			if st, ok := t.Type.(*ast.StructType); ok {
				r.structs[t.Name.Name], r.docs[t.Name.Name] = st, plain(g.Doc.Text())
			}
		}
	}
	return nil
}

// walk adds the section of a struct that stands at path, and then those below it.
func (r *reader) walk(name, path string) error {
	if i, seen := r.at[name]; seen {
		r.sections[i].paths = append(r.sections[i].paths, path)
		return nil
	}
	st := r.structs[name]
	i := len(r.sections)
	r.at[name] = i
	r.sections = append(r.sections, section{paths: []string{path}, about: asYAML(r.docs[name], st)})
	type below struct{ name, path string }
	var later []below
	for _, f := range st.Fields.List {
		tag, ok := yamlTag(f)
		if !ok {
			continue
		}
		about := asYAML(plain(f.Doc.Text()+" "+f.Comment.Text()), st)
		at := strings.TrimPrefix(path+"."+tag, ".")
		kind, inner, many := kindOf(f.Type)
		if r.structs[inner] != nil && kind == "" {
			if kind = "section"; many {
				kind, at = "list of sections", at+"[]"
			}
			later = append(later, below{inner, at})
			if about == "" {
				about = r.docs[inner]
			}
		}
		if kind == "" {
			return fmt.Errorf("%s is of a type that has no name here: %s", at, inner)
		}
		if about == "" {
			about = strings.ReplaceAll(tag, "_", " ") // what needs no comment
		}
		r.sections[i].keys = append(r.sections[i].keys, key{tag, kind, r.presets[at], withoutPreset(about, r.presets[at])})
	}
	for _, b := range later {
		if err := r.walk(b.name, b.path); err != nil {
			return err
		}
	}
	return nil
}

// kindOf names a type in a YAML file; empty for a struct, which inner names.
func kindOf(t ast.Expr) (kind, inner string, many bool) {
	switch t := t.(type) {
	case *ast.StarExpr:
		return kindOf(t.X)
	case *ast.ArrayType:
		kind, inner, _ = kindOf(t.Elt)
		if kind != "" {
			kind = "list of " + kind + "s"
		}
		return kind, inner, true
	case *ast.SelectorExpr:
		if t.Sel.Name == "Duration" {
			return "duration", "", false
		}
		return "", t.Sel.Name, false
	case *ast.Ident:
		return map[string]string{"string": "text", "bool": "true or false", "int": "number", "uint32": "number", "Size": "size", "Secret": "secret", "URL": "URL"}[t.Name], t.Name, false
	}
	return "", fmt.Sprintf("%T", t), false
}

func yamlTag(f *ast.Field) (string, bool) {
	if f.Tag == nil {
		return "", false
	}
	text, err := strconv.Unquote(f.Tag.Value)
	name, _, _ := strings.Cut(reflect.StructTag(text).Get("yaml"), ",")
	return name, err == nil && name != "" && name != "-"
}

// asYAML has a comment on a struct name its fields as a file does, but for words such as TLS.
func asYAML(comment string, st *ast.StructType) string {
	for _, f := range st.Fields.List {
		tag, ok := yamlTag(f)
		for _, n := range f.Names {
			if ok && n.Name != strings.ToUpper(n.Name) {
				comment = regexp.MustCompile(`\b`+n.Name+`\b`).ReplaceAllString(comment, "`"+tag+"`")
			}
		}
	}
	return comment
}

// withoutPreset leaves out of a comment what stands in the column beside it.
func withoutPreset(about, preset string) string {
	if preset == "" {
		return about
	}
	said := regexp.MustCompile(`(^|; )default:? "?` + regexp.QuoteMeta(preset) + `"?($|[.;,])`)
	return strings.TrimSuffix(said.ReplaceAllString(about, "$2"), ";")
}

// plain is a comment as one line.
func plain(comment string) string { return strings.Join(strings.Fields(comment), " ") }

// noteSaid notes the paths of the values that a file has.
func noteSaid(said map[string]bool, path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.DocumentNode:
		noteSaid(said, path, n.Content[0])
	case yaml.SequenceNode:
		for _, c := range n.Content {
			noteSaid(said, path+"[]", c)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			at := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			said[at] = true
			noteSaid(said, at, n.Content[i+1])
		}
	}
}

// notePresets notes what stands in a loaded configuration where the file said nothing.
func (r *reader) notePresets(said map[string]bool, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.notePresets(said, path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.notePresets(said, path+"[]", v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			if name != "" && name != "-" {
				r.notePresets(said, strings.TrimPrefix(path+"."+name, "."), v.Field(i))
			}
		}
	default:
		if text := shown(v); text != "" && !said[path] && r.presets[path] == "" {
			r.presets[path] = text
		}
	}
}

// shown is a value as a file has it; empty where it says nothing.
func shown(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		if x == 0 {
			return "0s"
		}
		text := x.String()
		for _, unit := range []string{"m0s", "h0m"} {
			text = strings.Replace(text, unit, unit[:1], 1)
		}
		return text
	case config.Size:
		for _, unit := range []struct {
			name string
			size config.Size
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if x > 0 && x%unit.size == 0 {
				return fmt.Sprint(int(x/unit.size), unit.name)
			}
		}
		return fmt.Sprint(int(x))
	}
	return fmt.Sprint(v.Interface())
}

// pathsOf is where a section stands, as a heading.
func (s section) pathsOf() string {
	paths := slices.Clone(s.paths)
	for i, p := range paths {
		paths[i] = "`" + p + "`"
	}
	return strings.Join(paths, ", ")
}
