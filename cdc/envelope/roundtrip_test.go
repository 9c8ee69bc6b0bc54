package envelope_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// all is a Select that wants the given columns of every table.
func all(cols *cdc.Columns) envelope.Select {
	return func(string, cdc.TableID) *cdc.Columns { return cols }
}

func decoder(t testing.TB, s envelope.Select) *envelope.Decoder {
	t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Select: s})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// encode writes a change as the record that a feeder produces.
func encode(t testing.TB, c *cdc.RowChange, o envelope.Options) envelope.Record {
	t.Helper()
	key, value, err := envelope.Encode(c, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return envelope.Record{Topic: "p.shop.users", Key: key, Value: value}
}

func decode(t testing.TB, d *envelope.Decoder, rec envelope.Record) *cdc.RowChange {
	t.Helper()
	c, ignored, err := d.Decode(rec)
	if err != nil || ignored != "" {
		t.Fatalf("ignored %q, error %v\nkey   %s\nvalue %s", ignored, err, rec.Key, rec.Value)
	}
	return c
}

var sameChange = cmp.Options{
	cmpopts.IgnoreFields(cdc.RowChange{}, "KeyColumns"), // a decoder's alone
	cmpopts.IgnoreFields(cdc.Position{}, "GTIDSet", "ServerUUID", "SystemID", "Timeline"),
	cmp.Comparer(func(a, b *cdc.Columns) bool { return a == b }),
	cmp.Comparer(func(a, b cdc.Value) bool { return a == b }),
}

// drawValue is any value that a feeder may hand over.
func drawValue(t *rapid.T, conn cdc.Connector) cdc.Value {
	kinds := []cdc.Kind{cdc.Absent, cdc.Null, cdc.Integer, cdc.Decimal, cdc.Float, cdc.Text, cdc.Bytes, cdc.Bytea, cdc.JSON, cdc.Unclear, cdc.Bool}
	v := cdc.Value{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
	switch v.Kind {
	case cdc.Absent, cdc.Null:
	case cdc.Integer:
		v.S = rapid.StringMatching(`0|-?[1-9][0-9]{0,22}|00[0-9]{2}`).Draw(t, "integer")
	case cdc.Decimal:
		v.S = rapid.StringMatching(`-?[0-9]{1,30}(\.[0-9]{1,10})?|NaN|-?Infinity`).Draw(t, "decimal")
	case cdc.Float:
		v.S = rapid.StringMatching(`-?[1-9](\.[0-9]{0,9}[1-9])?(e[+-][0-9]{2})?|NaN`).Draw(t, "float")
	case cdc.Bytes, cdc.Bytea:
		v.S = string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	case cdc.Unclear:
		v.S = string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		v.Why = rapid.String().Draw(t, "why")
	case cdc.Bool:
		v.S = rapid.SampledFrom([]string{"t", "f"}).Draw(t, "bool")
		if conn != cdc.Postgres {
			v.S = rapid.SampledFrom([]string{"1", "0"}).Draw(t, "bool")
		}
	default:
		v.S = rapid.String().Draw(t, "text")
	}
	return v
}

func drawChange(t *rapid.T) *cdc.RowChange {
	conn := rapid.SampledFrom([]cdc.Connector{cdc.MySQL, cdc.MariaDB, cdc.Postgres}).Draw(t, "connector")
	n := rapid.IntRange(1, 40).Draw(t, "columns")
	list := make([]cdc.Column, n)
	for i := range list {
		list[i] = cdc.Column{Name: fmt.Sprintf("%s.%d", rapid.String().Draw(t, "name"), i), Key: rapid.Bool().Draw(t, "key")}
	}
	row := func() cdc.Row {
		r := make(cdc.Row, n)
		for i := range r {
			r[i] = drawValue(t, conn)
		}
		return r
	}
	c := &cdc.RowChange{
		Source: rapid.String().Draw(t, "source"), Connector: conn,
		TableID:    cdc.TableID{Schema: rapid.StringN(1, -1, -1).Draw(t, "schema"), Table: rapid.String().Draw(t, "table")},
		Op:         rapid.SampledFrom([]cdc.Op{cdc.Insert, cdc.Update, cdc.Delete, cdc.Truncate}).Draw(t, "op"),
		Columns:    cdc.NewColumns(list),
		CommitTime: time.UnixMicro(rapid.Int64Range(1, 1e16).Draw(t, "µs")).UTC(),
		Tx:         rapid.StringMatching(`[a-f0-9-]{1,36}:[1-9][0-9]{0,9}`).Draw(t, "tx"),
		Ordinal:    rapid.Int64Range(0, 1e9).Draw(t, "ordinal"),
	}
	if conn == cdc.Postgres {
		c.Database = rapid.String().Draw(t, "database")
		c.Tx = strconv.Itoa(rapid.IntRange(1, 1e9).Draw(t, "xid"))
		c.Position.LSN = fmt.Sprintf("%X/%X", rapid.Uint32().Draw(t, "hi"), rapid.Uint32().Draw(t, "lo"))
	} else {
		c.Position.File, c.Position.Pos = "binlog.000006", rapid.Uint64Range(0, 1e12).Draw(t, "pos")
	}
	if c.Op == cdc.Update || c.Op == cdc.Delete {
		c.Before = row()
	}
	if c.Op == cdc.Update || c.Op == cdc.Insert {
		c.After = row()
	}
	return c
}

// Whatever a feeder hands over comes back with the same texts and kinds.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawChange(t)
		key, value, err := envelope.Encode(c, envelope.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := envelope.NewDecoder(envelope.Config{Select: all(c.Columns)})
		if err != nil {
			t.Fatal(err)
		}
		got, ignored, err := d.Decode(envelope.Record{Topic: "p.a.b", Key: key, Value: value})
		if err != nil || ignored != "" {
			t.Fatalf("ignored %q, error %v, value %s", ignored, err, value)
		}
		if diff := cmp.Diff(c, got, sameChange); diff != "" {
			t.Fatalf("-written +read:\n%s\n%s", diff, value)
		}
	})
}
