package app

import (
	"regexp"
	"testing"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/config"
)

// B4 and I12: a source says its connector's own placeholder, and whether the rows of snapshots are asked for.
func TestB4I12OptionsOfASource(t *testing.T) {
	columns := cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "slug"}})
	read := func(topics config.Topics, op, slug string) (*cdc.RowChange, string) {
		t.Helper()
		c, err := decoding("dbz", &topics, regexp.MustCompile("a"))
		if err != nil {
			t.Fatal(err)
		}
		c.Select = func(string, cdc.TableID) *cdc.Columns { return columns }
		d, err := envelope.NewDecoder(c)
		if err != nil {
			t.Fatal(err)
		}
		change, ignored, err := d.Decode(envelope.Record{Topic: "a", Value: []byte(`{"before":null,"after":{"id":7,"slug":"` + slug +
			`"},"source":{"connector":"postgresql","name":"s","db":"d","schema":"shop","table":"u"},"op":"` + op + `"}`)})
		if err != nil {
			t.Fatal(err)
		}
		return change, ignored
	}
	if c, ignored := read(config.Topics{}, "r", "x"); c != nil || ignored != envelope.IgnoredSnapshot {
		t.Errorf("by default: %v, %q", c, ignored)
	}
	if c, _ := read(config.Topics{Snapshots: true}, "r", "x"); c == nil || c.Op != cdc.Read {
		t.Errorf("asked for: %+v", c)
	}
	const usual = "__debezium_unavailable_value"
	for _, tt := range []struct {
		topics config.Topics
		slug   string
		want   cdc.Kind
	}{{config.Topics{}, usual, cdc.Absent}, {config.Topics{}, "(same)", cdc.Text}, {config.Topics{Unavailable: "(same)"}, "(same)", cdc.Absent}} {
		if c, _ := read(tt.topics, "u", tt.slug); c.After[1].Kind != tt.want {
			t.Errorf("%s under %q: kind %d, want %d", tt.slug, tt.topics.Unavailable, c.After[1].Kind, tt.want)
		}
	}
}
