package envelope_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

func integer(s string) cdc.Value { return cdc.Value{Kind: cdc.Integer, S: s} }
func text(s string) cdc.Value    { return cdc.Value{Kind: cdc.Text, S: s} }
func decimal(s string) cdc.Value { return cdc.Value{Kind: cdc.Decimal, S: s} }

var null = cdc.Value{Kind: cdc.Null}

var users = cdc.NewColumns([]cdc.Column{
	{Name: "id", Type: "bigint unsigned", Key: true}, {Name: "email", Type: "varchar(200)"}, {Name: "credit", Type: "decimal(10,2)"},
	{Name: "updated_at", Type: "timestamp(6)"}, {Name: "avatar", Type: "blob"},
})

// change is an update of users, as the MySQL feeder hands it over.
func change() *cdc.RowChange {
	return &cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: cdc.Update, Columns: users,
		Before:     cdc.Row{integer("18446744073709551615"), text("a@x.test"), decimal("500.00"), null, {Kind: cdc.Bytes, S: "\x00\xff"}},
		After:      cdc.Row{integer("18446744073709551615"), text("\"b\"\n\u2028\x00"), decimal("-0.10"), text("2026-11-30 01:02:03.123456"), {}},
		CommitTime: time.Date(2026, 11, 30, 1, 2, 3, 123456000, time.UTC), Tx: "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", Ordinal: 2,
		Position: cdc.Position{File: "binlog.000006", Pos: 3289},
	}
}

func TestEncode(t *testing.T) {
	message := &cdc.RowChange{
		Source: "shop", Connector: cdc.Postgres, TableID: cdc.TableID{Database: "shop"}, Op: cdc.Message, Prefix: "cache", Content: []byte("feed:42"),
		CommitTime: time.UnixMicro(1796028135027916), Tx: "102836", Position: cdc.Position{LSN: "0/180F3BE0"},
	}
	truncate := &cdc.RowChange{
		Source: "shop", Connector: cdc.Postgres, TableID: cdc.TableID{Database: "shop", Schema: "public", Table: "users"}, Op: cdc.Truncate, Columns: users,
		CommitTime: time.UnixMicro(1796028135027916), Tx: "102836", Position: cdc.Position{LSN: "1/0"},
	}
	for _, tt := range []struct {
		name       string
		c          *cdc.RowChange
		o          envelope.Options
		key, value string
	}{
		{"update", change(), envelope.Options{At: time.UnixMicro(1796000523200001)}, `{"id":18446744073709551615}`,
			`{"before":{"id":18446744073709551615,"email":"a@x.test","credit":"500.00","updated_at":null,"avatar":"AP8="},` +
				`"after":{"id":18446744073709551615,"email":"\"b\"\n` + "\u2028" + `\u0000","credit":"-0.10","updated_at":"2026-11-30 01:02:03.123456"},` +
				`"source":{"version":"invalidator-1","connector":"mysql","name":"shop","snapshot":"false","db":"shop","table":"users",` +
				`"ts_ms":1796000523123,"ts_us":1796000523123456,"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","file":"binlog.000006","pos":3289,` +
				`"invalidator":{"v":1,"ordinal":2,"types":{"credit":"decimal","avatar":"bytes"}}},` +
				`"transaction":{"id":"3e11fa47-71ca-11e1-9e33-c80aa9429562:23","total_order":3},"op":"u","ts_ms":1796000523200,"ts_us":1796000523200001}`},
		{"message", message, envelope.Options{}, `{"prefix":"cache"}`,
			`{"message":{"prefix":"cache","content":"ZmVlZDo0Mg=="},"source":{"version":"invalidator-1","connector":"postgresql","name":"shop",` +
				`"snapshot":"false","db":"shop","schema":"","table":"","ts_ms":1796028135027,"ts_us":1796028135027916,"txId":102836,"lsn":403651552,` +
				`"invalidator":{"v":1,"ordinal":0}},"transaction":{"id":"102836","total_order":1},"op":"m","ts_ms":1796028135027,"ts_us":1796028135027916}`},
		{"truncate", truncate, envelope.Options{}, "",
			`{"before":null,"after":null,"source":{"version":"invalidator-1","connector":"postgresql","name":"shop",` +
				`"snapshot":"false","db":"shop","schema":"public","table":"users","ts_ms":1796028135027,"ts_us":1796028135027916,"txId":102836,"lsn":4294967296,` +
				`"invalidator":{"v":1,"ordinal":0}},"transaction":{"id":"102836","total_order":1},"op":"t","ts_ms":1796028135027,"ts_us":1796028135027916}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := encode(t, tt.c, tt.o)
			if diff := cmp.Diff(tt.key, string(rec.Key)); diff != "" {
				t.Errorf("key: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.value, string(rec.Value)); diff != "" {
				t.Errorf("value: -want +got\n%s", diff)
			}
			if (rec.Key == nil) != (tt.key == "") {
				t.Errorf("key %v; a missing key is nil", rec.Key)
			}
			tt.c.CommitTime = tt.c.CommitTime.UTC()
			if tt.c.Op == cdc.Message {
				tt.c.Columns = nil
			}
			if diff := cmp.Diff(tt.c, decode(t, decoder(t, all(users)), rec), sameChange); diff != "" {
				t.Errorf("-written +read\n%s", diff)
			}
		})
	}
}

// The three values that tools lose come back to the last digit, whatever else the table holds.
func TestValuesSurvive(t *testing.T) {
	c := decode(t, decoder(t, all(users)), encode(t, change(), envelope.Options{}))
	for _, tt := range []struct{ got, want string }{
		{c.Before[0].Text(), "18446744073709551615"}, {c.Before[2].Text(), "500.00"}, {c.After[3].Text(), "2026-11-30 01:02:03.123456"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s; want %s", tt.got, tt.want)
		}
	}
}

// A record holds its key in the key's own order, and none where the table has none.
func TestRecordKey(t *testing.T) {
	cols := cdc.NewColumns([]cdc.Column{{Name: "id", Key: true}, {Name: "org_id", Key: true}, {Name: "raw", Key: false}})
	c := &cdc.RowChange{
		Connector: cdc.MySQL, Op: cdc.Insert, Columns: cols, KeyColumns: []string{"org_id", "id"},
		After: cdc.Row{integer("1"), {Kind: cdc.Bytes, S: "\x00"}, null},
	}
	if rec := encode(t, c, envelope.Options{}); string(rec.Key) != `{"org_id":"AA==","id":1}` {
		t.Errorf("key %s", rec.Key)
	}
	c.KeyColumns = []string{}
	if rec := encode(t, c, envelope.Options{}); rec.Key != nil {
		t.Errorf("key %s; want null", rec.Key)
	}
}

// G6: a row above the limit is written with its key and the columns that mappings name, then with its key alone.
func TestG6SlimRecord(t *testing.T) {
	wide := change()
	wide.After[4] = cdc.Value{Kind: cdc.Bytes, S: strings.Repeat("x", 2<<20)}
	for _, tt := range []struct {
		name  string
		email string
		limit int
		want  []string
	}{
		{"kept columns", "b@x.test", 1 << 20, []string{"18446744073709551615", "b@x.test", "", "", ""}},
		{"key alone", strings.Repeat("x", 2<<20), 1 << 20, []string{"18446744073709551615", "", "", "", ""}},
		{"no limit", "b@x.test", 0, []string{"18446744073709551615", "b@x.test", "-0.10", "2026-11-30 01:02:03.123456", wide.After[4].S}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wide.After[1] = text(tt.email)
			rec := encode(t, wide, envelope.Options{MaxBytes: tt.limit, Keep: func(cdc.TableID) []string { return []string{"email", "gone"} }})
			if tt.limit > 0 && len(rec.Key)+len(rec.Value) > tt.limit {
				t.Errorf("%d bytes", len(rec.Key)+len(rec.Value))
			}
			c := decode(t, decoder(t, all(users)), rec)
			if c.Slim != (tt.limit > 0) {
				t.Errorf("slim %v", c.Slim)
			}
			for i, want := range tt.want {
				if v := c.After[i]; v.Text() != want || want == "" && v.Kind != cdc.Absent {
					t.Errorf("column %d: kind %d, %.40q; want %.40q", i, v.Kind, v.Text(), want)
				}
			}
		})
	}
	_, _, err := envelope.Encode(wide, envelope.Options{MaxBytes: 100}, nil)
	var ee *envelope.EncodeError
	if !errors.Is(err, envelope.ErrTooLarge) || !errors.As(err, &ee) || ee.Table.Table != "users" {
		t.Errorf("error %v; want ErrTooLarge that names the table", err)
	}
}

// A logical message above the limit keeps its prefix: whoever writes one must not stop the source.
func TestG6SlimMessage(t *testing.T) {
	c := &cdc.RowChange{Connector: cdc.Postgres, Op: cdc.Message, Prefix: "cache", Content: make([]byte, 1<<20), Tx: "7"}
	got := decode(t, decoder(t, all(users)), encode(t, c, envelope.Options{MaxBytes: 1 << 20}))
	if got.Op != cdc.Message || got.Prefix != "cache" || len(got.Content) != 0 || !got.Slim {
		t.Errorf("op %s, prefix %q, %d bytes, slim %t", got.Op, got.Prefix, len(got.Content), got.Slim)
	}
}

func TestEncodeNamesTheColumnThatIsNotText(t *testing.T) {
	c := change()
	c.After[1] = text("M\xfcller")
	_, _, err := envelope.Encode(c, envelope.Options{}, nil)
	if want := "encoding a change of source shop, table shop.users, column email: text is not valid UTF-8"; err == nil || err.Error() != want {
		t.Errorf("error %v; want %s", err, want)
	}
}

// A column whose kind differs between the images comes back in both.
func TestKindsThatDiffer(t *testing.T) {
	c := change()
	c.Before[1], c.After[1] = cdc.Value{Kind: cdc.Unclear, S: "\xff", Why: "a text in charset big5"}, text("b")
	c.Before[2], c.After[2] = text("x"), decimal("1.0")
	got := decode(t, decoder(t, all(users)), encode(t, c, envelope.Options{}))
	if diff := cmp.Diff(c, got, sameChange); diff != "" {
		t.Errorf("-written +read\n%s", diff)
	}
}

// C1: an update that changes the key is a delete under the old key and a create under the new.
func TestC1ChangedKey(t *testing.T) {
	cols := cdc.NewColumns([]cdc.Column{{Name: "a", Key: true}, {Name: "b", Key: true}, {Name: "email"}})
	row := func(a, b, email cdc.Value) cdc.Row { return cdc.Row{a, b, email} }
	absent, one, two := cdc.Value{}, integer("1"), integer("2")
	for _, tt := range []struct {
		name          string
		before, after cdc.Row
		want          []string // key and op of each record
	}{
		{"changed", row(one, one, text("x")), row(two, one, text("x")), []string{`{"a":1,"b":1} d`, `{"a":2,"b":1} c`}},
		{"same", row(one, one, text("x")), row(one, one, text("y")), []string{`{"a":1,"b":1} u`}},
		{"before of the key alone", row(one, one, absent), row(one, two, text("x")), []string{`{"a":1,"b":1} d`, `{"a":1,"b":2} c`}},
		{"minimal after image", row(one, one, absent), row(two, absent, absent), []string{`{"a":1,"b":1} d`, `{"a":2,"b":1} c`}},
		{"minimal, key unchanged", row(one, one, absent), row(absent, absent, text("y")), []string{`{"a":1,"b":1} u`}},
		{"no before image", nil, row(one, one, text("x")), []string{`{"a":1,"b":1} u`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &cdc.RowChange{Connector: cdc.MySQL, Op: cdc.Update, Columns: cols, Before: tt.before, After: tt.after}
			var got []string
			first, second := envelope.Split(c)
			for _, half := range []*cdc.RowChange{first, second} {
				if half != nil {
					got = append(got, fmt.Sprintf("%s %s", encode(t, half, envelope.Options{}).Key, half.Op))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if c.Op != cdc.Update {
				t.Error("Split changed what it was given")
			}
		})
	}
}

// An encoder that is given a buffer allocates nothing, whether or not the transaction is the last one's.
func TestEncodeReusesItsMemory(t *testing.T) {
	var e envelope.Encoder
	c, buf := change(), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		c.Position.Pos += uint64(c.Ordinal % 2)
		c.Ordinal++
		if _, _, err := e.Encode(c, envelope.Options{}, buf); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
