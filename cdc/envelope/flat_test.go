package envelope_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

func row(value string) envelope.Record {
	return envelope.Record{Topic: "p.shop.users", Key: []byte(`{"id":7}`), Value: []byte(value)}
}

// I3: the delete that the transform rewrites, in each of its forms; an update has no old row.
func TestI3Unwrapped(t *testing.T) {
	cols := columns("id ; email ", false)
	d := unwrapping(t, func(source string, id cdc.TableID) *cdc.Columns {
		if source != "s" || id.String() != "shop.users" {
			t.Errorf("asked for %s of %q", id, source)
		}
		return cols
	})
	both := cdc.Row{integer("7"), text("a")}
	for _, tt := range []struct {
		name, value   string
		op            cdc.Op
		before, after cdc.Row
	}{
		{"bare", `{"id":7,"email":"a"}`, cdc.Update, nil, both},
		{"deleted as text", `{"id":7,"email":"a","__deleted":"true"}`, cdc.Delete, both, nil},
		{"deleted as a boolean", `{"id":7,"email":"a","__deleted":true}`, cdc.Delete, both, nil},
		{"not deleted", `{"id":7,"email":"a","__deleted":"false"}`, cdc.Update, nil, both},
		{"not deleted, a boolean", `{"id":7,"email":"a","__deleted":false}`, cdc.Update, nil, both},
		{"create", `{"id":7,"email":"a","__op":"c"}`, cdc.Insert, nil, both},
		{"update", `{"__op":"u","id":7,"email":"a"}`, cdc.Update, nil, both},
		{"op d", `{"id":7,"email":"a","__op":"d"}`, cdc.Delete, both, nil},
		{"with schema", `{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"},{"type":"string","field":"email"},{"type":"string","field":"__deleted"}]},` +
			`"payload":{"id":7,"email":"a","__deleted":"true"}}`, cdc.Delete, both, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := decode(t, d, row(tt.value))
			if c.Op != tt.op || c.Source != "s" || !cmp.Equal(c.KeyColumns, []string{"id"}) {
				t.Errorf("%+v", c)
			}
			if diff := cmp.Diff([]cdc.Row{tt.before, tt.after}, []cdc.Row{c.Before, c.After}, exactly); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	if c := decode(t, d, envelope.Record{Topic: "p.shop.users", Key: []byte(`{"id":7}`)}); c.Op != cdc.Tomb || c.Before[0] != integer("7") || c.Before[1].Kind != cdc.Absent {
		t.Errorf("%+v", c)
	}
}

// Whatever fields of the envelope stand beside the row are used.
func TestUnwrappedFields(t *testing.T) {
	cols := columns("id ", false)
	c := decode(t, unwrapping(t, all(cols)), row(`{"id":7,"__op":"u","__source_ts_ms":1796028134579,"__ts_ms":1,"__table":"t","__schema":"sc","__db":"base",`+
		`"__name":"n","__source_connector":"postgresql","__source_txId":771,"__source_lsn":4294967297}`))
	want := &cdc.RowChange{
		Source: "n", Connector: cdc.Postgres, TableID: cdc.TableID{Database: "base", Schema: "sc", Table: "t"}, Op: cdc.Update, Columns: cols, KeyColumns: []string{"id"},
		After: cdc.Row{integer("7")}, CommitTime: time.UnixMilli(1796028134579).UTC(), Tx: "771", Position: cdc.Position{LSN: "1/1"},
	}
	if diff := cmp.Diff(want, c, exactly); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestUnwrappedTable(t *testing.T) {
	for _, tt := range []struct {
		name, topic, value string
		connector          cdc.Connector
		table              func(string) (cdc.TableID, bool)
		want               cdc.TableID
	}{
		{"of the topic", "a.b.shop.users", `{"id":7}`, "", nil, cdc.TableID{Schema: "shop", Table: "users"}},
		{"of the row and the topic", "a.b.shop.other", `{"id":7,"__table":"users"}`, "", nil, cdc.TableID{Schema: "shop", Table: "users"}},
		{"of MySQL's row", "users", `{"id":7,"__table":"users","__db":"shop"}`, cdc.MySQL, nil, cdc.TableID{Schema: "shop", Table: "users"}},
		{"of Postgres's row and the topic", "p.public.x", `{"id":7,"__table":"users","__db":"shop"}`, cdc.Postgres, nil, cdc.TableID{Database: "shop", Schema: "public", Table: "users"}},
		{"configured", "users", `{"id":7}`, "", func(string) (cdc.TableID, bool) { return cdc.TableID{Schema: "x", Table: "y"}, true }, cdc.TableID{Schema: "x", Table: "y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Unwrapped, Select: all(columns("id ", false)), Connector: tt.connector, Table: tt.table})
			if err != nil {
				t.Fatal(err)
			}
			if c := decode(t, d, envelope.Record{Topic: tt.topic, Value: []byte(tt.value)}); c.TableID != tt.want || c.Connector != tt.connector {
				t.Errorf("%+v of %q, want %+v", c.TableID, c.Connector, tt.want)
			}
		})
	}
	if _, _, err := unwrapping(t, all(columns("id ", false))).Decode(envelope.Record{Topic: "users", Value: []byte(`{"id":7}`)}); err == nil || !strings.Contains(err.Error(), "topics.table") {
		t.Errorf("%v; want a hint", err)
	}
}

// A deleted row of a Postgres table with REPLICA IDENTITY DEFAULT holds its key alone; the fields beside it are no columns.
func TestUnwrappedDeleteOfTheKeyAlone(t *testing.T) {
	d := unwrapping(t, all(columns("id ; email ; n ", false)))
	c := decode(t, d, row(`{"id":7,"email":null,"n":0,"__deleted":"true","__connector":"postgresql","__table":"users"}`))
	if diff := cmp.Diff(cdc.Row{integer("7"), {}, {}}, c.Before, exactly); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// I6 and I12: what the transform passes on is told from a row, whatever the row's columns are called.
func TestI6I12UnwrappedRecordsThatAreNoRows(t *testing.T) {
	d := unwrapping(t, all(columns("id ", false)))
	for _, tt := range []struct{ topic, value, ignored string }{
		{"__debezium-heartbeat.p", `{"ts_ms":1}`, envelope.IgnoredHeartbeat},
		{"p.transaction", `{"status":"END","id":"1","event_count":1,"ts_ms":1}`, envelope.IgnoredTransaction},
		{"p", `{"source":{"db":"x"},"ddl":"alter table x add y int","tableChanges":[]}`, envelope.IgnoredDDL},
		{"p.shop.users", `{"id":7,"__op":"r"}`, envelope.IgnoredSnapshot},
		{"p.shop.users", `{"id":7,"__op":"c","__source_snapshot":"last"}`, envelope.IgnoredSnapshot},
	} {
		if c, ignored, err := d.Decode(envelope.Record{Topic: tt.topic, Value: []byte(tt.value)}); c != nil || ignored != tt.ignored || err != nil {
			t.Errorf("%s: %v, %q, %v", tt.value, c, ignored, err)
		}
	}
	for _, value := range []string{
		`{"id":7,"ts_ms":1}`, `{"id":7,"status":"END","event_count":2}`, `{"id":7,"source":"x","ddl":"y"}`, `{"id":7,"op":"c","source":"mail"}`,
		`{"id":7,"before":1,"after":2,"transaction":"t"}`,
	} {
		if c := decode(t, d, row(value)); c.Op != cdc.Update || c.After[0] != integer("7") {
			t.Errorf("%s: %+v", value, c)
		}
	}
	whole := debezium(cdc.MySQL, "", "1")
	if c := decode(t, d, whole); c.Op != cdc.Insert || c.After[0] != integer("7") || c.TableID.Table != "zoo" {
		t.Errorf("a whole envelope: %+v", c)
	}
	for _, value := range []string{`{"id":7,"__op":"m"}`, `{"id":7,"__op":"z"}`, `[7]`, `{"id":7,"id":8}`, `{"id":`} {
		_, _, err := d.Decode(row(value))
		var de *envelope.DecodeError
		if !errors.As(err, &de) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// I13: binary.handling.mode, as the source says it.
func TestI13BinaryModes(t *testing.T) {
	const raw = "\xfb\xff\xfe\x01"
	for _, tt := range []struct {
		mode          envelope.Binary
		schema, value string
	}{
		{"", "", `"+//+AQ=="`}, {envelope.Base64, "bytes", `"+//+AQ=="`}, {envelope.Base64, "string", `"+//+AQ=="`},
		{envelope.Base64URL, "", `"-__-AQ=="`}, {envelope.Base64URL, "string", `"-__-AQ=="`},
		{envelope.Hex, "", `"fbfffe01"`}, {envelope.Hex, "string", `"FBFFFE01"`}, {envelope.Hex, "bytes", `"+//+AQ=="`},
	} {
		d, err := envelope.NewDecoder(envelope.Config{Select: all(columns("id ; v varbinary(9)", true)), Binary: tt.mode})
		if err != nil {
			t.Fatal(err)
		}
		schema := ""
		if tt.schema != "" {
			schema = `{"type":"int32","field":"id"},` + fieldSchema(tt.schema)
		}
		if v := decode(t, d, debezium(cdc.MySQL, schema, tt.value)).After[1]; v.Kind != cdc.Bytes || v.S != raw {
			t.Errorf("%s %s %s: %+v", tt.mode, tt.schema, tt.value, v)
		}
	}
	d, _ := envelope.NewDecoder(envelope.Config{Select: all(columns("id ; v bytea", true)), Binary: envelope.Hex})
	wantUnclear(t, decode(t, d, debezium(cdc.Postgres, "", `"AP8="`)).After[1], "hex")
	for name, conf := range map[string]envelope.Config{"format": {Format: "csv"}, "binary": {Binary: "octal"}} {
		if _, err := envelope.NewDecoder(conf); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
