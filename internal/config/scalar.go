package config

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Secret is a text that is never printed. In YAML it is a scalar (mostly ${VAR}) or {file: path}.
type Secret struct {
	text string
	file string // that it is read from; empty: none
}

// NewSecret is for configuration that is made in code.
func NewSecret(text string) Secret { return Secret{text: text} }

// Reveal returns the text: what its file has now, or had when the configuration was loaded, where it cannot be read or is empty.
func (s Secret) Reveal() string {
	if s.file != "" {
		if text, err := readSecret(s.file); err == nil && text != "" {
			return text
		}
	}
	return s.text
}

// readSecret reads the first line of a file.
func readSecret(file string) (string, error) {
	data, err := os.ReadFile(file)
	text, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), err
}

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
	s.file = n.Content[1].Value
	var err error
	if s.text, err = readSecret(s.file); err != nil {
		return fmt.Errorf("line %d: reading a secret: %w", n.Line, err)
	}
	return nil
}

// URL may have a password in it, which is never printed.
type URL string

// Reveal returns the text.
func (u URL) Reveal() string { return string(u) }

func (u URL) String() string {
	at, err := url.Parse(string(u))
	if err != nil {
		return "***" // who knows what of it is a password
	}
	return at.Redacted()
}

// GoString keeps %#v from printing a password.
func (u URL) GoString() string { return u.String() }

// MarshalYAML keeps a printed configuration from showing a password.
func (u URL) MarshalYAML() (any, error) { return u.String(), nil }

func (u URL) http() bool {
	at, err := url.Parse(string(u))
	return err == nil && at.Host != "" && (at.Scheme == "http" || at.Scheme == "https")
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
