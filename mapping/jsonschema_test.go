package mapping

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// TestSchemaAgreesWithTheLoader walks one corpus with both.
func TestSchemaAgreesWithTheLoader(t *testing.T) {
	schema := compileSchema(t)
	for _, c := range []struct {
		corpus         string
		schema, loader bool // whether it takes the file
	}{
		{"valid.txt", true, true},
		{"invalid.txt", false, false},
		{"beyond.txt", true, false},
	} {
		for name, text := range corpus(t, c.corpus) {
			t.Run(strings.TrimSuffix(c.corpus, ".txt")+"/"+name, func(t *testing.T) {
				if err := schema.Validate(asJSON(t, text)); (err == nil) != c.schema {
					t.Errorf("the schema takes it: %v, want %v: %v", err == nil, c.schema, err)
				}
				if f, problems := Parse("f.yaml", []byte(text)); (f != nil) != c.loader {
					t.Errorf("the loader takes it: %v, want %v: %v", f != nil, c.loader, problems)
				}
			})
		}
	}
}

// TestSchemaTakesTheExamples: what is shipped passes in an editor.
func TestSchemaTakesTheExamples(t *testing.T) {
	schema := compileSchema(t)
	files, err := filepath.Glob("../mappings.d/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(asJSON(t, string(data))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// corpus reads a file of cases: "-- name --" stands before each.
func corpus(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "schema", file))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{}
	for _, section := range strings.Split(string(data), "\n-- ")[1:] {
		name, text, ok := strings.Cut(section, " --\n")
		if _, doubled := cases[name]; !ok || doubled {
			t.Fatalf("%s: section %q is doubled or has no end", file, name)
		}
		cases[name] = text + "\n"
	}
	return cases
}

// asJSON is what an editor checks: YAML 1.2's core, in which a date is a text.
func asJSON(t *testing.T, text string) any {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	var plain func(n *yaml.Node) any
	plain = func(n *yaml.Node) any {
		switch n.Kind {
		case yaml.DocumentNode:
			return plain(n.Content[0])
		case yaml.SequenceNode:
			list := []any{}
			for _, c := range n.Content {
				list = append(list, plain(c))
			}
			return list
		case yaml.MappingNode:
			object := map[string]any{}
			for i := 0; i < len(n.Content); i += 2 {
				object[n.Content[i].Value] = plain(n.Content[i+1])
			}
			return object
		}
		if n.Tag == "!!timestamp" {
			return n.Value
		}
		var v any
		if err := n.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if _, ok := v.(uint64); ok { // too large for the checker's integers
			return json.Number(n.Value)
		}
		return v
	}
	return plain(&root)
}

// TestSchemaTellsAnEditorOfEveryField: each is described, no object takes unknown fields, and each example is right.
func TestSchemaTellsAnEditorOfEveryField(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(JSONSchema(), &root); err != nil {
		t.Fatal(err)
	}
	defs := root["$defs"].(map[string]any)
	fields, examples := 0, 0
	var walk func(path string, n any)
	walk = func(path string, n any) {
		switch n := n.(type) {
		case []any:
			for i, e := range n {
				walk(fmt.Sprint(path, "/", i), e)
			}
		case map[string]any:
			if list, ok := n["examples"].([]any); ok {
				c := jsonschema.NewCompiler()
				if err := c.AddResource("schema.json", root); err != nil {
					t.Fatal(err)
				}
				one, err := c.Compile("schema.json#" + path)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range list {
					if examples++; one.Validate(e) != nil {
						t.Errorf("%s: the example %v is none: %v", path, e, one.Validate(e))
					}
				}
			}
			properties, ok := n["properties"].(map[string]any)
			if ok && n["type"] == "object" {
				if n["additionalProperties"] != false {
					t.Errorf("%s takes unknown fields", path)
				}
				for name, p := range properties {
					fields++
					p := p.(map[string]any)
					ref, _ := p["$ref"].(string)
					named, _ := defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
					if p["description"] == nil && named["description"] == nil {
						t.Errorf("%s/properties/%s has no description", path, name)
					}
				}
			}
			for name, e := range n {
				if name != "examples" {
					walk(path+"/"+name, e)
				}
			}
		}
	}
	walk("", root)
	if fields < 30 || examples < 15 {
		t.Errorf("%d fields, %d examples", fields, examples)
	}
}
