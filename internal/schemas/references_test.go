package schemas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

func reference(name, subject string, version int) sr.SchemaReference {
	return sr.SchemaReference{Name: name, Subject: subject, Version: version}
}

// Schemas as a team has them that shares a type between topics: the image refers to a type, and the envelope to both.
const (
	money  = `{"type":"record","name":"Money","namespace":"shared","fields":[{"name":"scale","type":"int"},{"name":"value","type":"bytes"}],"connect.name":"io.debezium.data.VariableScaleDecimal"}`
	value  = `{"type":"record","name":"Value","namespace":"shop.users","fields":[{"name":"id","type":"long"},{"name":"credit","type":["null","shared.Money"]}]}`
	users1 = `{"type":"record","name":"Envelope","namespace":"shop.users","fields":[{"name":"before","type":["null","Value"]},{"name":"after","type":["null","shop.users.Value"]},` +
		`{"name":"fee","type":"shared.Money"},{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},` +
		`{"name":"table","type":"string"}]}},{"name":"op","type":"string"}]}`
)

// addShop registers them, and returns the envelope's id.
func (r *rig) addShop(t *testing.T) int {
	r.add(t, "money", sr.Schema{Schema: record})
	r.add(t, "money", sr.Schema{Schema: money})
	r.add(t, "users", sr.Schema{Schema: value, References: []sr.SchemaReference{reference("shared.Money", "money", 2)}})
	return r.add(t, "users-value", sr.Schema{Schema: users1, References: []sr.SchemaReference{reference("shop.users.Value", "users", 1), reference("shared.Money", "money", 2)}})
}

// I7: a schema that refers to others is read with them, each fetched once.
func TestI7References(t *testing.T) {
	r := newRig(t, Options{})
	id := r.addShop(t)
	var text string
	for range 2 {
		var err error
		if text, err = r.client.Schema(t.Context(), number(id)); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.asked.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	amount := map[string]any{"scale": int32(2), "value": []byte{0x01, 0xf4}}
	row := map[string]any{"id": int64(7), "credit": amount}
	body, err := avro.MustParse(text).Encode(map[string]any{
		"before": nil, "after": row, "fee": amount, "op": "c", "source": map[string]any{"connector": "mysql", "db": "shop", "table": "users"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cols := cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "credit"}})
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Avro, Schemas: r.client, Select: func(string, cdc.TableID) *cdc.Columns { return cols }})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := d.Decode(envelope.Record{Topic: "s.shop.users", Value: append([]byte{0, 0, 0, 0, byte(id)}, body...)})
	if err != nil || c.After[0].Text() != "7" || c.After[1].Text() != "5.00" {
		t.Errorf("%+v, %v", c, err)
	}
	subject, _ := r.fake.GetSchema("users-value", 1)
	if by, err := r.client.Schema(t.Context(), envelope.SchemaID{Kind: envelope.GUID, GUID: subject.GUID}); err != nil || by != text {
		t.Errorf("by GUID: %q, %v", by, err)
	}
}

// script serves schemas of which no registry would take all: by id 1, and by subject and version.
func script(answers map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		answer, ok := answers[req.URL.Path]
		switch {
		case ok:
			_, _ = w.Write([]byte(answer))
		case strings.HasPrefix(req.URL.Path, "/subjects/absent/"):
			http.Error(w, `{"error_code":40401,"message":"Subject 'absent' not found."}`, http.StatusNotFound)
		default:
			http.Error(w, `{"error_code":40402,"message":"Version not found."}`, http.StatusNotFound)
		}
	}
}

func answer(schema, more string, refs ...sr.SchemaReference) string {
	var list []string
	for _, r := range refs {
		list = append(list, fmt.Sprintf(`{"name":%q,"subject":%q,"version":%d}`, r.Name, r.Subject, r.Version))
	}
	return fmt.Sprintf(`{"schema":%q,"references":[%s]%s}`, schema, strings.Join(list, ","), more)
}

const refers = `{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}`

// I7: what is wrong with a reference is said by its name, and the records are parked: the registry is not to blame.
func TestI7ReferencesThatAreRefused(t *testing.T) {
	many := map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", "a", 1))}
	for i := range maxReferences + 1 {
		many[fmt.Sprintf("/subjects/a/versions/%d", i+1)] = answer(record, "", reference("R", "a", i+2))
	}
	for name, tt := range map[string]struct {
		answers map[string]string
		want    string
		circle  bool
	}{
		"itself": {map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", "a", 1)), "/subjects/a/versions/1": answer(refers, "", reference("R", "a", 1))},
			"subject a, version 1 -> subject a, version 1", true},
		"a circle": {map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", "a", 1)), "/subjects/a/versions/1": answer(refers, "", reference("Q", "b", 3)),
			"/subjects/b/versions/3": answer(refers, "", reference("R", "a", 1))}, "subject a, version 1 -> subject b, version 3 -> subject a, version 1", true},
		"too many": {many, "over 256 schemas", false},
		"Protobuf": {map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", "a", 1)), "/subjects/a/versions/1": answer("x", `,"schemaType":"PROTOBUF"`)},
			"refers to R, subject a, version 1, which is PROTOBUF", false},
		"another type than it says": {map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", "a", 1)), "/subjects/a/versions/1": answer(strings.Replace(record, `"R"`, `"T"`, 1), "")},
			`unknown type "R"`, false},
		"no Avro": {map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", "a", 1)), "/subjects/a/versions/1": answer("{", "")}, "joining", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			r.failing(script(tt.answers))
			_, err := r.client.Schema(t.Context(), number(1))
			if err == nil || retryable(err) || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrCircle) != tt.circle {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// I7: a reference that is not there may still turn up for a while, as a schema itself, and is named then.
func TestI7ReferenceThatIsAbsent(t *testing.T) {
	for _, subject := range []string{"absent", "a"} {
		r := newRig(t, Options{})
		answers := map[string]string{"/schemas/ids/1": answer(refers, "", reference("R", subject, 4))}
		r.failing(script(answers))
		want := "it refers to R, subject " + subject + ", version 4, which the registry does not have"
		for range 2 {
			if _, err := r.client.Schema(t.Context(), number(1)); !retryable(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("at first: %v", err)
			}
			r.advanced += patience / 2
		}
		r.advanced += time.Second
		for range 2 {
			if _, err := r.client.Schema(t.Context(), number(1)); retryable(err) || !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), want) {
				t.Errorf("after %s: %v", patience, err)
			}
		}
		answers["/subjects/"+subject+"/versions/4"] = answer(record, "")
		r.advanced += forget
		if _, err := r.client.Schema(t.Context(), number(1)); err != nil {
			t.Errorf("when it was put back: %v", err)
		}
	}
}

// I7: a registry that fails in the middle is worth another try, which goes on where the last one ended; all together take no longer
// than the timeout.
func TestI7ReferencesOfASlowRegistry(t *testing.T) {
	r := newRig(t, Options{Timeout: 200 * time.Millisecond})
	id := r.addShop(t)
	r.failing(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, "/subjects/money") {
			<-req.Context().Done()
			return
		}
		r.fake.Handler().ServeHTTP(w, req)
	})
	if _, err := r.client.Schema(t.Context(), number(id)); !retryable(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	r.fail.Store(nil)
	r.client.http.Timeout, r.client.timeout = 5*time.Second, 5*time.Second
	before := r.asked.Load()
	if _, err := r.client.Schema(t.Context(), number(id)); err != nil {
		t.Fatal(err)
	}
	if n := r.asked.Load() - before; n != 2 { // the schema, and what was not there
		t.Errorf("asked %d times, want 2", n)
	}
}
