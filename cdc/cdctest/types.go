// Package cdctest reads cdc/TYPES.md for tests: each row of its table is a test vector for every feeder and envelope.
package cdctest

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"invalidator/cdc"
)

// Vector is one row of the table, as it stands there.
type Vector struct {
	Server     cdc.Connector // MySQL stands for MariaDB too
	Type       string        // the column's type
	Insert     string        // a literal of SQL that makes the value
	Value      cdc.Value     // what a feeder hands over
	Ours       string        // its JSON in our envelope
	Schema     string        // its Debezium schema, in short
	JSON       string        // its Debezium JSON
	WithSchema string        // what is read with the schema alone …
	Declared   string        // … with the type declared …
	Neither    string        // … and with neither
	Maxwell    string        // its JSON from Maxwell; empty for what Maxwell does not read
	Undeclared string        // what is read of that where the type is not declared
}

// Connectors are the connectors that the row holds for.
func (v Vector) Connectors() []cdc.Connector {
	if v.Server == cdc.MySQL {
		return []cdc.Connector{cdc.MySQL, cdc.MariaDB}
	}
	return []cdc.Connector{v.Server}
}

var kinds = map[string]cdc.Kind{
	"bool": cdc.Bool, "integer": cdc.Integer, "decimal": cdc.Decimal, "float": cdc.Float, "text": cdc.Text, "bytes": cdc.Bytes,
	"bytea": cdc.Bytea, "json": cdc.JSON,
}

// Types reads the table.
func Types(t testing.TB) []Vector {
	t.Helper()
	var all []Vector
	for line := range strings.Lines(read(t)) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |\n"), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 13 {
			t.Fatalf("TYPES.md: %d cells in %s", len(cells), line)
		}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(strings.Trim(c, "` |—"), "·", " ")
			if cells[i] == "(empty)" {
				cells[i] = ""
			}
		}
		all = append(all, Vector{
			Server: cdc.Connector(cells[0]), Type: cells[1], Insert: cells[2], Value: value(t, cells[4], cells[3]),
			Ours: cells[5], Schema: cells[6], JSON: cells[7], WithSchema: cells[8], Declared: cells[9], Neither: cells[10],
			Maxwell: cells[11], Undeclared: cells[12],
		})
	}
	if len(all) < 60 {
		t.Fatalf("TYPES.md: only %d rows", len(all))
	}
	return all
}

func value(t testing.TB, kind, text string) cdc.Value {
	t.Helper()
	v := cdc.Value{Kind: kinds[kind], S: text}
	digits := text
	switch v.Kind {
	case cdc.Absent:
		t.Fatalf("TYPES.md: kind %q is not known", kind)
	case cdc.Bytes:
		digits = strings.TrimPrefix(text, "0x")
	case cdc.Bytea:
		digits = strings.TrimPrefix(text, `\x`)
	default:
		return v
	}
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatalf("TYPES.md: %q: %v", text, err)
	}
	v.S = string(raw)
	return v
}

func read(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "cdc", "TYPES.md")); err == nil {
			return string(data)
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("cdc/TYPES.md is not above the test's folder")
		}
		dir = up
	}
}
