package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// Error is everything that is wrong with a config file; each line reads file:line: what is wrong (hint).
type Error struct {
	File  string
	Lines []string
}

func (e *Error) Error() string { return strings.Join(e.Lines, "\n") }

// Load reads and checks a file. Relative paths inside are taken from the file's folder.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w (name it with --config)", err)
	}
	return Parse(path, data)
}

// Parse is Load for bytes; path names them in errors.
func Parse(path string, data []byte) (*Config, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, yamlError(path, err)
	}
	p := &parser{file: path}
	p.expand(&root)
	if len(p.lines) > 0 {
		return nil, &Error{path, p.lines}
	}
	c := &Config{}
	p.checkFields(&root, data)
	if len(root.Content) > 0 {
		if err := root.Decode(c); err != nil {
			p.lines = append(p.lines, yamlError(path, err).Lines...)
		}
	}
	if len(p.lines) > 0 {
		return nil, &Error{path, p.lines}
	}
	c.setDefaults(filepath.Dir(path))
	if lines := c.problems(path, &root); len(lines) > 0 {
		return nil, &Error{path, lines}
	}
	return c, nil
}

type parser struct {
	file  string
	lines []string
}

// checkFields finds unknown fields: yaml.v3 looks for them only when it decodes a stream, so it does that once and the
// values are taken from the expanded tree.
func (p *parser) checkFields(root *yaml.Node, data []byte) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var shape Config
	err := dec.Decode(&shape)
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return
	}
	for _, l := range te.Errors {
		if m := unknownField.FindStringSubmatch(l); m != nil {
			p.lines = append(p.lines, fmt.Sprintf("%s:%s: unknown field %q (see invalidator.example.yaml)", p.file, m[1], m[2]))
		}
	}
}

var (
	unknownField = regexp.MustCompile(`^line (\d+): field (\S+) not found in type`)
	variable     = regexp.MustCompile(`\$\{([^}]*)\}`)
	linePrefix   = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
)

// expand replaces ${VAR} inside scalars, after parsing, so that a password may hold any character.
func (p *parser) expand(n *yaml.Node) {
	for _, c := range n.Content {
		p.expand(c)
	}
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${") {
		return
	}
	n.Value = variable.ReplaceAllStringFunc(n.Value, func(m string) string {
		name := m[2 : len(m)-1]
		v, ok := os.LookupEnv(name)
		if !ok {
			p.lines = append(p.lines, fmt.Sprintf("%s:%d: environment variable %s is not set", p.file, n.Line, name))
		}
		return v
	})
}

// yamlError turns yaml.v3's errors into lines of file:line: text.
func yamlError(path string, err error) *Error {
	var te *yaml.TypeError
	raw := []string{err.Error()}
	if errors.As(err, &te) {
		raw = te.Errors
	}
	out := &Error{File: path}
	for _, l := range raw {
		if m := linePrefix.FindStringSubmatch(l); m != nil {
			l = fmt.Sprintf("%s:%s: %s", path, m[1], strings.TrimPrefix(l, m[0]))
		} else {
			l = path + ": " + strings.TrimPrefix(l, "yaml: ")
		}
		out.Lines = append(out.Lines, strings.ReplaceAll(l, "!!", ""))
	}
	return out
}
