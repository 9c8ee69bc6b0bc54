package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/mapping"
)

// seeing runs CheckTables over topics of a fake broker that hold these records, and returns its findings and what the topics show.
func seeing(t *testing.T, sources string, records ...*kgo.Record) (problems, findings, topics []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "dbz.shop.users", "dbz.shop.orders", "dbz.empty", "maxwell", "flat", "unrelated"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\nsources:\n%s", cluster.ListenAddrs()[0], sources))
	write(t, dir, "mappings.d/a.yaml", "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}\", \"user:{id}:{email}\"]}\n")
	set, ps, err := mapping.Load(dir + "/mappings.d")
	if err != nil || len(ps) > 0 {
		t.Fatal(ps, err)
	}
	out := CheckTables(t.Context(), conf, set, quiet)
	for _, p := range out.Problems {
		what, _, _ := strings.Cut(p.What, ": where")
		what, _, _ = strings.Cut(what, ", and there")
		problems = append(problems, fmt.Sprintf("%d %s: %s", p.Col, p.Severity, what))
	}
	for _, f := range out.Findings {
		findings = append(findings, f.String())
	}
	for _, s := range out.Topics {
		topics = append(topics, s.Topic+": "+s.Shows())
	}
	return problems, findings, topics
}

const (
	dbzKey     = `{"id":1}`
	dbzPlain   = `{"before":null,"after":{"id":1,"email":"a"},"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users"},"op":"c"}`
	dbzSchema  = `{"schema":{"type":"struct","fields":[]},"payload":` + dbzPlain + `}`
	ours       = `{"before":null,"after":{"id":1,"email":"a"},"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users","invalidator":{"v":1,"ordinal":0}},"op":"c"}`
	maxwellRow = `{"database":"shop","table":"users","type":"insert","ts":1,"data":{"id":1,"email":"a"}}`
)

func record(topic, key, value string) *kgo.Record {
	r := &kgo.Record{Topic: topic}
	if key != "" {
		r.Key = []byte(key)
	}
	if value != "" {
		r.Value = []byte(value)
	}
	return r
}

func TestCheckLooksAtTheTopicsThatSomebodyElseFeeds(t *testing.T) {
	const dbz = "  - {name: dbz, topics: {pattern: 'dbz\\..*'}, first_start: latest}\n"
	untyped := []string{
		"51 warning: table shop.users: nobody says of which type column id is: the records of source dbz have no schema",
		"69 warning: table shop.users: nobody says of which type column email is: the records of source dbz have no schema",
	}
	for _, c := range []struct {
		name, sources              string
		records                    []*kgo.Record
		problems, findings, topics []string
	}{
		{"without a schema", dbz, []*kgo.Record{record("dbz.shop.users", dbzKey, dbzPlain), record("dbz.shop.users", dbzKey, "")}, untyped, nil,
			[]string{"dbz.empty: no change of a row among its newest records", "dbz.shop.orders: no change of a row among its newest records", "dbz.shop.users: shop.users (no types, key id)"}},
		{"with one", dbz, []*kgo.Record{record("dbz.shop.users", "", dbzSchema)}, nil, nil,
			[]string{"dbz.empty: no change of a row among its newest records", "dbz.shop.orders: no change of a row among its newest records", "dbz.shop.users: shop.users (types, no key)"}},
		{"of our own", dbz, []*kgo.Record{record("dbz.shop.users", dbzKey, ours)}, nil, nil,
			[]string{"dbz.empty: no change of a row among its newest records", "dbz.shop.orders: no change of a row among its newest records", "dbz.shop.users: shop.users (types, key id)"}},
		{"both, and a broken one", dbz, []*kgo.Record{record("dbz.shop.users", dbzKey, dbzPlain), record("dbz.shop.users", "", dbzSchema), record("dbz.shop.orders", "", "{broken")}, untyped,
			[]string{"warning: source dbz, topic dbz.shop.orders: partition 0, offset 0: decoding a record of topic dbz.shop.orders: "},
			[]string{"dbz.empty: no change of a row among its newest records", "dbz.shop.orders: no change of a row among its newest records", "dbz.shop.users: shop.users (no types, key id)"}},
		{"only a tombstone", "  - {name: dbz, topics: {pattern: 'dbz\\.shop\\.users'}, first_start: latest}\n", []*kgo.Record{record("dbz.shop.users", dbzKey, "")}, []string{
			"25 warning: no change of shop.users stands among the newest records of the topics of source dbz (1 of them)",
			"51 note: nobody says of which type column id is", "69 note: nobody says of which type column email is"}, nil,
			[]string{"dbz.shop.users: no change of a row among its newest records"}},
		{"Maxwell", "  - {name: mx, topics: {pattern: maxwell, format: maxwell}, first_start: latest}\n", []*kgo.Record{record("maxwell", `{"database":"shop","table":"users","pk.id":1}`, maxwellRow)}, []string{
			"51 warning: table shop.users: nobody says of which type column id is: Maxwell's records (source mx) name no types",
			"69 warning: table shop.users: nobody says of which type column email is: Maxwell's records (source mx) name no types"}, nil,
			[]string{"maxwell: shop.users (no types, key id)"}},
		{"unwrapped", "  - {name: flat, topics: {pattern: flat, format: unwrapped, table: shop.users, connector: mysql}, first_start: latest}\n", []*kgo.Record{record("flat", dbzKey, `{"schema":{"type":"struct","fields":[]},"payload":{"id":1,"email":"a"}}`)}, []string{
			"69 warning: table shop.users: source flat is unwrapped, and column email is not of the record's key (id): an update has no old row, so that the key of its old value stays"}, nil,
			[]string{"flat: shop.users (types, key id)"}},
		{"no topic", "  - {name: none, topics: {pattern: 'none\\..*'}, first_start: latest}\n", nil, []string{
			"25 warning: no change of shop.users stands among the newest records of the topics of source none (0 of them)",
			"51 note: nobody says of which type column id is", "69 note: nobody says of which type column email is"},
			[]string{`warning: source none: no topic matches ^(?:none\..*)$ yet (topics.pattern is for whole names)`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems, findings, topics := seeing(t, c.sources, c.records...)
			if diff := cmp.Diff(c.problems, problems); diff != "" {
				t.Error("problems", diff)
			}
			for i := range findings {
				if i < len(c.findings) && strings.HasPrefix(findings[i], c.findings[i]) {
					findings[i] = c.findings[i]
				}
			}
			if diff := cmp.Diff(c.findings, findings); diff != "" {
				t.Error("findings", diff)
			}
			if diff := cmp.Diff(c.topics, topics); diff != "" {
				t.Error("topics", diff)
			}
		})
	}
}

// What could not be asked is an error, and nothing is known of it.
func TestCheckTellsOfTopicsThatItCannotLookAt(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusServiceUnavailable) }))
	defer down.Close()
	problems, findings, topics := seeing(t, "  - {name: dbz, topics: {pattern: 'dbz\\..*', format: avro, registry: {url: '"+down.URL+"'}}, first_start: latest}\n",
		record("dbz.shop.users", "", "\x00\x00\x00\x00\x07abc"))
	if len(problems) > 0 || len(topics) > 0 || len(findings) != 1 || !strings.HasPrefix(findings[0], "error: source dbz: its records could not be read, so that which tables they are of is not known: ") {
		t.Errorf("got %q, %q, %q", problems, findings, topics)
	}

	for kafka, want := range map[string]string{
		"kafka: {brokers: ['127.0.0.1:1']}\n": "error: source a, source b: its topics could not be looked at, so that which tables they hold is not known: ",
		"":                                    "warning: source a, source b: its topics were not looked at, for no broker is named (set kafka.brokers)",
	} {
		dir := t.TempDir()
		conf := parse(t, dir, kafka+"sources: [{name: a, topics: {pattern: a}, first_start: latest}, {name: b, topics: {pattern: b}, first_start: latest}]")
		write(t, dir, "mappings.d/a.yaml", usersMapping)
		set, _, err := mapping.Load(dir + "/mappings.d")
		if err != nil {
			t.Fatal(err)
		}
		out := CheckTables(t.Context(), conf, set, quiet)
		if len(out.Findings) != 1 || !strings.HasPrefix(out.Findings[0].String(), want) {
			t.Errorf("got %v, want %s", out.Findings, want)
		}
	}
}
