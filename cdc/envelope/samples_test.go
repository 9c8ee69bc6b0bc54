package envelope_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

var update = flag.Bool("update", false, "write the golden files anew")

// declared are the columns of the samples' tables with the types that their databases give them.
var declared = map[string]string{
	"mysql.users":    "id bigint unsigned; email varchar(200); phone varchar(20); name varchar(100); version int; updated_at timestamp(6)",
	"mysql.listings": "id int; org_id int; sku varchar(40); price decimal(12,4); status enum('draft','live','gone'); tags set('a','b','c')",
	"mysql.zoo": "id int; u8 tinyint unsigned; i8 tinyint; b1 tinyint(1); u64 bigint unsigned; d decimal(30,10); f float; g double; c char(5); " +
		"v varchar(50); t text; bl varbinary(16); bin16 binary(16); bi bit(1); bi12 bit(12); dt date; dtm datetime; dtm6 datetime(6); " +
		"ts timestamp; tm time(3); y year; j json; e enum('x','y,z'); s set('p','q'); nul varchar(3)",
	"postgres.users":    "id bigint; email text; name character varying(100); version integer; updated_at timestamp with time zone; phone text",
	"postgres.listings": "org_id integer; id integer; sku text; price numeric(12,4); status text",
	"postgres.bigrow":   "id integer; small text; big text",
	"postgres.zoo": "id integer; b boolean; i2 smallint; i8 bigint; n numeric; n2 numeric(30,10); r real; d double precision; c character(5); " +
		"v character varying(50); t text; by bytea; u uuid; dt date; ts timestamp without time zone; tstz timestamp with time zone; " +
		"tm time without time zone; iv interval; j json; jb jsonb; arr integer[]; inet inet; mny money; bt bit(3); big text",
}

// columns makes Columns of "name type; name type".
func columns(list string, types bool) *cdc.Columns {
	var cols []cdc.Column
	for _, item := range strings.Split(list, "; ") {
		name, typ, _ := strings.Cut(item, " ")
		if !types {
			typ = ""
		}
		cols = append(cols, cdc.Column{Name: name, Type: typ})
	}
	return cdc.NewColumns(cols)
}

// selectSamples wants all columns of the samples' tables. A tombstone's database is told by its file.
func selectSamples(database string, types bool) envelope.Select {
	byTable := map[string]*cdc.Columns{}
	for name, list := range declared {
		if table, ok := strings.CutPrefix(name, database+"."); ok {
			byTable[table] = columns(list, types)
		}
	}
	return func(_ string, t cdc.TableID) *cdc.Columns { return byTable[t.Table] }
}

type sample struct {
	Topic   string
	Key     *string
	Payload *string
}

func (s sample) record() envelope.Record {
	rec := envelope.Record{Topic: s.Topic}
	if s.Key != nil {
		rec.Key = []byte(*s.Key)
	}
	if s.Payload != nil {
		rec.Value = []byte(*s.Payload)
	}
	return rec
}

const samplesDir = "../../testdata/debezium-samples"

func readSamples(t testing.TB, file string) []sample {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(samplesDir, file))
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	for line := range bytes.Lines(data) {
		var s sample
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// show is one value in a golden file.
func show(v cdc.Value) string {
	switch v.Kind {
	case cdc.Absent:
		return "-"
	case cdc.Null:
		return "NULL"
	case cdc.Unclear:
		return "?(" + v.Why + ")"
	case cdc.Ambiguous:
		return strings.Join(v.Candidates(), "|")
	}
	text := v.Text()
	if len(text) > 60 {
		text = fmt.Sprintf("%s…(%d)", text[:20], len(text))
	}
	return fmt.Sprintf("%q", text)
}

func showRow(w *strings.Builder, name string, cols *cdc.Columns, r cdc.Row) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "    %s:", name)
	for i, v := range r {
		fmt.Fprintf(w, " %s=%s", cols.List[i].Name, show(v))
	}
	w.WriteByte('\n')
}

// Every record of the samples is read without an error, as the golden file has it, snapshots too: bare, and with its types
// declared.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(samplesDir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	for _, path := range files {
		file := filepath.Base(path)
		t.Run(file, func(t *testing.T) {
			database := "postgres"
			if strings.Contains(file, "mysql") {
				database = "mysql"
			}
			var w strings.Builder
			for _, types := range []bool{false, true} {
				fmt.Fprintf(&w, "# types declared: %v\n", types)
				d, err := envelope.NewDecoder(envelope.Config{Select: selectSamples(database, types), Snapshots: true})
				if err != nil {
					t.Fatal(err)
				}
				for i, s := range readSamples(t, file) {
					c, ignored, err := d.Decode(s.record())
					switch {
					case err != nil:
						t.Errorf("record %d: %v", i, err)
					case ignored != "":
						fmt.Fprintf(&w, "%d ignored: %s\n", i, ignored)
					default:
						fmt.Fprintf(&w, "%d %s %s key=%v tx=%s/%d at=%s content=%q\n", i, c.Op, c.TableID, c.KeyColumns, c.Tx, c.Ordinal,
							c.CommitTime.Format("15:04:05.000000"), c.Content)
						showRow(&w, "before", c.Columns, c.Before)
						showRow(&w, "after", c.Columns, c.After)
					}
				}
			}
			golden(t, file, w.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "samples", strings.TrimSuffix(name, ".jsonl")+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines(string(want)), lines(got)); diff != "" {
		t.Errorf("-golden +read:\n%s", diff)
	}
}

func lines(s string) []string {
	var out []string
	for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
		out = append(out, sc.Text())
	}
	return out
}
