package config

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Secret is a text that is never printed. In YAML it is a scalar (mostly ${VAR}) or {file: path}.
type Secret struct{ text string }

// NewSecret is for configuration that is made in code.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return "***"
}

// GoString keeps %#v from printing the text.
func (s Secret) GoString() string { return s.String() }

// MarshalYAML keeps a printed configuration from showing the text.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// UnmarshalYAML reads a scalar, or the first line of the file that {file: path} names.
func (s *Secret) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		s.text = n.Value
		return nil
	}
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[0].Value != "file" || n.Content[1].Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a secret is a text (mostly ${VAR}) or {file: path}", n.Line)
	}
	data, err := os.ReadFile(n.Content[1].Value)
	if err != nil {
		return fmt.Errorf("line %d: reading a secret: %w", n.Line, err)
	}
	s.text, _, _ = strings.Cut(string(data), "\n")
	s.text = strings.TrimSuffix(s.text, "\r")
	return nil
}

// Size is a number of bytes: 8MiB, 64KiB, 1000000.
type Size int

// UnmarshalYAML reads a number with an optional KiB, MiB or GiB.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	text, unit := n.Value, 1
	for suffix, u := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if cut, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(cut), u
		}
	}
	v, err := strconv.Atoi(text)
	if n.Kind != yaml.ScalarNode || err != nil || v < 0 || v > math.MaxInt/unit {
		return fmt.Errorf("line %d: %q is not a size (write 8MiB, 64KiB or a number of bytes)", n.Line, n.Value)
	}
	*s = Size(v * unit)
	return nil
}
