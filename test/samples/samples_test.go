package samples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/mapping"
)

const dir = "../../testdata/debezium-samples"

// record is one line of a sample.
type record struct{ Topic, Key, Payload string }

// files are the samples of a database and a format: plain or schema.
func files(t *testing.T, format, database string) []record {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("*%s.%s.*jsonl", format, database)))
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	var all []record
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var r record
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// name is "users u 1": table, op and the values of the record's key, which differ from record to record of one sample. One that is
// no change is named for its topic.
func (r record) name(t *testing.T) string {
	t.Helper()
	parse := func(text string) (v map[string]any) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if inner, ok := v["payload"].(map[string]any); ok {
			return inner
		}
		return v
	}
	op := "tombstone"
	if r.Payload != "" {
		op, _ = parse(r.Payload)["op"].(string)
	}
	topic, table, _ := strings.Cut(r.Topic, ".")
	switch {
	case topic == "__debezium-heartbeat":
		return "heartbeat"
	case table == "":
		return "schema changes"
	case op == "":
		return table
	}
	key := parse(r.Key)
	var values []string
	for _, column := range []string{"org_id", "id", "prefix"} {
		if v, ok := key[column]; ok {
			values = append(values, fmt.Sprint(v))
		}
	}
	return strings.Join([]string{strings.TrimPrefix(table, "shop."), op, strings.Join(values, "/")}, " ")
}

func load(t *testing.T, database string) *mapping.Set {
	t.Helper()
	file, problems := mapping.LoadFile(filepath.Join("testdata", database+".yaml"))
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	set, problems := mapping.NewSet([]*mapping.File{file})
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	return set
}

// bare wants the same columns as a set of mappings, without the types that it declares.
func bare(set *mapping.Set) envelope.Select {
	tables := map[cdc.TableID]*cdc.Columns{}
	return func(source string, id cdc.TableID) *cdc.Columns {
		if declared := set.Columns(source, id); tables[id] == nil && declared != nil {
			columns := slices.Clone(declared.List)
			for i := range columns {
				columns[i].Type = ""
			}
			tables[id] = cdc.NewColumns(columns)
		}
		return tables[id]
	}
}

// keys are what a record feeds, snapshots too, or the word for why it is no change.
func keys(t *testing.T, d *envelope.Decoder, set *mapping.Set, r record) (keys []string, ignored string) {
	t.Helper()
	keys = []string{}
	rec := envelope.Record{Topic: r.Topic, Key: []byte(r.Key)}
	if r.Payload != "" {
		rec.Value = []byte(r.Payload)
	}
	c, ignored, err := d.Decode(rec)
	if err != nil {
		t.Fatal(err)
	}
	if ignored != "" {
		return keys, ignored
	}
	if c.Op == cdc.Message {
		return []string{string(c.Content)}, ""
	}
	var result mapping.Result
	set.Keys(c, &result)
	for _, k := range result.Keys {
		keys = append(keys, k.Text)
	}
	slices.Sort(keys)
	return keys, ""
}

func decoder(t *testing.T, columns envelope.Select) *envelope.Decoder {
	t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Select: columns, Snapshots: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Every record of the samples gives exactly the keys worked out by hand (mysql_test.go, postgres_test.go), whether it has a
// schema or not, where the mappings declare the columns' types.
func TestDeclared(t *testing.T) {
	for database, wants := range samples {
		for _, format := range []string{"plain", "schema"} {
			t.Run(database+"/"+format, func(t *testing.T) {
				set := load(t, database)
				d, seen := decoder(t, set.Columns), map[string]int{}
				for _, r := range files(t, format, database) {
					name := r.name(t)
					seen[name]++
					want, ok := wants.of(format, name)
					got, ignored := keys(t, d, set, r)
					switch {
					case !ok && ignored == "":
						t.Errorf("%s is not expected; it gives %q", name, got)
					case ignored != want.ignored:
						t.Errorf("%s is ignored as %q; want %q", name, ignored, want.ignored)
					}
					if diff := cmp.Diff(want.keys(), got); diff != "" {
						t.Errorf("%s: -want +got\n%s", name, diff)
					}
				}
				for _, want := range wants {
					if seen[want.record] != max(1, want.times) {
						t.Errorf("%s was met %d times", want.record, seen[want.record])
					}
				}
			})
		}
	}
}

// A schema alone, without a type in the mappings, loses none of the keys: where it leaves a value open, every candidate is
// there.
func TestSchemaAlone(t *testing.T) {
	for database, wants := range samples {
		t.Run(database, func(t *testing.T) {
			set := load(t, database)
			d := decoder(t, bare(set))
			for _, r := range files(t, "schema", database) {
				want, _ := wants.of("schema", r.name(t))
				got, _ := keys(t, d, set, r)
				for _, key := range want.keys() {
					if !slices.Contains(got, key) {
						t.Errorf("%s lacks %s: %q", want.record, key, got)
					}
				}
			}
		})
	}
}

// sample is one record and what it feeds.
type sample struct {
	record  string // as record.name says
	text    string // its keys, a space between them
	format  string // where the formats differ: plain or schema
	ignored string // or why it is no change
	times   int    // how often a sample holds it; 0 is once
}

func (s sample) keys() []string {
	keys := strings.Fields(s.text)
	slices.Sort(keys)
	return keys
}

type wanted []sample

// of finds what a record of a format must give.
func (w wanted) of(format, name string) (sample, bool) {
	i := slices.IndexFunc(w, func(s sample) bool { return s.record == name && (s.format == "" || s.format == format) })
	if i < 0 {
		return sample{}, false
	}
	return w[i], true
}

var samples = map[string]wanted{"mysql": mysql, "postgres": postgres}
