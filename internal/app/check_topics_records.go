package app

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/schemas"
	"invalidator/mapping"
)

// recordKind is what a record looks like, whatever its source was configured to hold.
type recordKind uint8

const (
	kindOther      recordKind = iota
	kindEnvelope              // Debezium's JSON: op and source
	kindFlat                  // a JSON object alone, as ExtractNewRecordState leaves
	kindMaxwell               // Maxwell's JSON
	kindFramed                // names a schema of a registry
	kindJSONSchema            // names one, and goes on as JSON
	kindBinary                // none of them: not JSON
)

// kindOf looks at a record's value. A tombstone is of no kind.
func kindOf(r changelog.Record) recordKind {
	if len(r.Value) == 0 {
		return kindOther
	}
	for _, h := range r.Headers {
		if h.Key == "__value_schema_id" || strings.HasPrefix(h.Key, "apicurio.value.") {
			return framedKind(r.Value)
		}
	}
	if v := r.Value; len(v) >= 5 && v[0] == 0 {
		return framedKind(v[5:])
	}
	v := bytes.TrimLeft(r.Value, " \t\r\n")
	if len(v) == 0 || v[0] != '{' {
		if json.Valid(r.Value) {
			return kindOther
		}
		return kindBinary
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(v, &m) != nil {
		return kindOther
	}
	if payload, wrapped := m["payload"]; wrapped && m["schema"] != nil && len(m) == 2 {
		m = nil
		if json.Unmarshal(payload, &m) != nil {
			return kindOther
		}
	}
	has := func(names ...string) bool {
		for _, n := range names {
			if _, ok := m[n]; !ok {
				return false
			}
		}
		return true
	}
	switch {
	case has("op", "source"):
		return kindEnvelope
	case has("database", "table", "type") && (has("data") || has("sql")):
		return kindMaxwell
	}
	return kindFlat
}

// framedKind tells JSON Schema from the rest: Avro and Protobuf look alike until the registry is asked.
func framedKind(body []byte) recordKind {
	if len(body) > 1 && body[0] == '{' && json.Valid(body) {
		return kindJSONSchema
	}
	return kindFramed
}

const (
	hintConverter = "let the connector write value.converter=org.apache.kafka.connect.json.JsonConverter, or Avro's with topics.format: avro and topics.registry"
	hintUnwrapped = "set topics.format: unwrapped, or better let the connector write its envelope: take ExtractNewRecordState out of transforms, since a row alone has no old values"
)

// unread says what records like one that was not decoded are ("are rows alone"), and what mends it; empty where only the record itself may be broken.
func unread(s *seenSource, r changelog.TopicRecord, err error) (what, hint string) {
	if errors.Is(err, schemas.ErrNotAvro) {
		return "are of a kind that is not read: " + cause(err), hintConverter
	}
	format := s.format
	switch kindOf(r.Record) {
	case kindJSONSchema:
		return "are JSON Schema's (a schema id, then JSON), which is not read", hintConverter
	case kindFramed:
		if !s.registry {
			return "name a schema of a registry: they are Avro, or Protobuf, which is not read",
				"if they are Avro, set topics.format: avro and topics.registry; else " + hintConverter
		}
	case kindBinary:
		return "are neither JSON nor Avro with a registry's schema: Protobuf and other binary forms are not read", hintConverter
	case kindEnvelope:
		if format == envelope.Maxwell {
			return "are Debezium's, and the source says maxwell", "set topics.format: debezium"
		}
	case kindMaxwell:
		if format != envelope.Maxwell {
			return "are Maxwell's, and the source does not say so", "set topics.format: maxwell"
		}
	case kindFlat:
		if format != envelope.Maxwell && format != envelope.Unwrapped && errors.Is(err, envelope.ErrNoOp) {
			return "are rows alone, and the source does not say so", hintUnwrapped
		}
	}
	if errors.Is(err, envelope.ErrNoOp) && kindOf(r.Record) == kindFramed {
		return "are rows alone, and the source does not say so", hintUnwrapped
	}
	return "", ""
}

// cause is an error without where it happened.
func cause(err error) string {
	if de := (*envelope.DecodeError)(nil); errors.As(err, &de) {
		return de.Err.Error()
	}
	return err.Error()
}

// sample is what the newest records of one topic show besides their tables.
type sample struct {
	rows, snapshots, truncates int
	ignored                    map[string]int // by word
	ours                       bool           // our own feeder's records
	envelopes                  int            // in a source that says unwrapped
	placeholder                bool           // Debezium's default one stands in a record
	doubts                     []string       // of columns that mappings read, each once
	unread, mend               string         // what the first record of another kind than the source says is
	others                     int            // such records
	broken                     error          // the first that could not be decoded
}

// doubt keeps what is told once.
func (s *sample) doubt(text string) {
	if !slices.Contains(s.doubts, text) {
		s.doubts = append(s.doubts, text)
	}
}

// unavailable are Debezium's default placeholder, as text and as base64.
var unavailable = [][]byte{[]byte("__debezium_unavailable_value"), []byte(base64.StdEncoding.EncodeToString([]byte("__debezium_unavailable_value")))}

// look takes in a record that was decoded.
func (s *sample) look(src *seenSource, r changelog.TopicRecord, c *cdc.RowChange, ignored string) {
	if ignored != "" {
		s.ignored[ignored]++
	}
	s.ours = s.ours || bytes.Contains(r.Value, []byte(`"invalidator":{`))
	placeholder := slices.ContainsFunc(unavailable, func(p []byte) bool { return bytes.Contains(r.Value, p) })
	s.placeholder = s.placeholder || placeholder
	if src.format == envelope.Unwrapped && len(r.Value) > 0 && kindOf(r.Record) == kindEnvelope {
		s.envelopes++
	}
	if c == nil || c.Table == "" {
		return
	}
	switch c.Op {
	case cdc.Truncate:
		s.truncates++
		return
	case cdc.Read:
		s.snapshots++
	case cdc.Insert, cdc.Update, cdc.Delete:
		s.rows++
	}
	plain := src.format == envelope.Auto && !namesTypes(r.Value)
	for i, col := range c.Columns.List {
		for _, row := range []cdc.Row{c.Before, c.After} {
			if row != nil {
				s.value(c, col, row[i], plain)
			}
		}
		if c.After != nil && c.After[i].Kind == cdc.Absent && placeholder {
			s.doubt(fmt.Sprintf("table %s: an update does not say column %s, a large value that did not change: keys that are made of it are not deleted (%s)",
				c.TableID, col.Name, oldRows(c)))
		}
	}
}

// value looks at one value of a column that a mapping reads.
func (s *sample) value(c *cdc.RowChange, col cdc.Column, v cdc.Value, plain bool) {
	const asText = "set decimal.handling.mode=string, or declare the column in the mapping"
	switch {
	case v.Kind == cdc.Unclear:
		hint := "declare the column in the mapping"
		if strings.Contains(v.Why, "decimal") || strings.Contains(v.Why, "double") {
			hint = asText
		}
		s.doubt(fmt.Sprintf("table %s, column %s: %s (%s)", c.TableID, col.Name, v.Why, hint))
	case plain && col.Type == "" && isBase64(v):
		s.doubt(fmt.Sprintf("table %s: column %s holds base64, so it is a decimal or binary, and nothing in the record says which (%s; for binary also topics.binary, as the connector's binary.handling.mode)",
			c.TableID, col.Name, asText))
	}
}

// isBase64 is sure of what ends in padding alone: other texts look the same by chance.
func isBase64(v cdc.Value) bool {
	if v.Kind != cdc.Text || !strings.HasSuffix(v.S, "=") {
		return false
	}
	_, err := base64.StdEncoding.Strict().DecodeString(v.S)
	return err == nil
}

// oldRows is what has the database log whole old rows.
func oldRows(c *cdc.RowChange) string {
	if c.Connector == cdc.MySQL || c.Connector == cdc.MariaDB {
		return "SET GLOBAL binlog_row_image = 'FULL', and let the sessions reconnect"
	}
	return fmt.Sprintf("ALTER TABLE %s.%s REPLICA IDENTITY FULL", c.Schema, c.TableID.Table)
}

// oldRow notes whether the newest update or delete of a table has an old row.
func (s *seenSource) oldRow(t *mapping.LiveTable, at map[cdc.TableID]time.Time, r changelog.TopicRecord, c *cdc.RowChange) {
	if c.Op != cdc.Update && c.Op != cdc.Delete || s.format == envelope.Unwrapped || s.format == envelope.Maxwell || r.Time.Before(at[c.TableID]) {
		return
	}
	at[c.TableID] = r.Time
	t.NoOld = ""
	if c.Before == nil || lacks(c) || onlyKey(r.Value, c) {
		t.NoOld = oldRows(c)
	}
}

// lacks reports whether the old row lacks a column outside the key.
func lacks(c *cdc.RowChange) bool {
	for i, col := range c.Columns.List {
		if c.Before[i].Kind == cdc.Absent && !slices.Contains(c.KeyColumns, col.Name) {
			return true
		}
	}
	return false
}

// onlyKey reports whether the old row of an update in JSON holds nothing but its key, and the new one more: so MySQL's connector writes
// what binlog_row_image=MINIMAL leaves out. A row whose other columns were all NULL looks the same.
func onlyKey(value []byte, c *cdc.RowChange) bool {
	if c.Op != cdc.Update || c.Connector == cdc.Postgres || len(c.KeyColumns) == 0 {
		return false
	}
	var v struct{ Payload json.RawMessage }
	if json.Unmarshal(value, &v) == nil && len(v.Payload) > 0 {
		value = v.Payload
	}
	var images struct{ Before, After map[string]json.RawMessage }
	if json.Unmarshal(value, &images) != nil {
		return false
	}
	more := func(image map[string]json.RawMessage) bool {
		for name, v := range image {
			if !slices.Contains(c.KeyColumns, name) && string(v) != "null" {
				return true
			}
		}
		return false
	}
	return !more(images.Before) && more(images.After)
}
