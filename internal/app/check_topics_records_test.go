package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/config"
	"invalidator/mapping"
)

// debezium are the records that real Debezium wrote, of a table or topic in a format.
func debezium(t *testing.T, name, topic string) (all []*kgo.Record) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "debezium-samples", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var r struct{ Key, Payload string }
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, record(topic, r.Key, r.Payload))
	}
	return all
}

const samplesMapping = `version: 1
team: a
pools: [user, big, org]
mappings:
  - {name: user, table: shop.users, columns: {id: bigint, email: text}, keys: ["user:{id}", "user:{email}"]}
  - {name: row, table: shop.bigrow, columns: {id: int, big: text}, keys: ["big:{id}:{big}"]}
  - {name: price, table: shop.listings, columns: {org_id: int}, keys: ["org:{org_id}:{price}"]}
`

// fill makes the records' topics, with settings, and produces them.
func fill(t *testing.T, brokers []string, settings map[string]string, records ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	var topics []string
	for _, r := range records {
		if !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
	}
	adm := kadm.NewClient(cl)
	made, err := adm.CreateTopics(context.Background(), 1, 1, configs, topics...)
	if err != nil || made.Error() != nil {
		t.Fatal(err, made.Error())
	}
	t.Cleanup(func() {
		if _, err := adm.DeleteTopics(context.Background(), topics...); err != nil {
			t.Error(err)
		}
	})
	if err := cl.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func configured(t *testing.T, brokers []string, sources, mappings string) (*config.Config, *mapping.Set) {
	t.Helper()
	dir := t.TempDir()
	c := parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {ring: {file: ring.json}}\nsources:\n%s", brokers[0], sources))
	write(t, dir, "mappings.d/a.yaml", mappings)
	set, problems, err := mapping.Load(filepath.Join(dir, "mappings.d"))
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return c, set
}

func fakeBrokers(t *testing.T) []string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

const (
	flatRow   = `{"id":1,"email":"a"}`
	mysqlBare = `{"before":{"id":1,"email":null,"name":null},"after":{"id":1,"email":"b","name":null},"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users"},"op":"u"}`
	mysqlFull = `{"before":{"id":1,"email":"a","name":null},"after":{"id":1,"email":"b","name":null},"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users"},"op":"u"}`
	truncated = `{"before":null,"after":null,"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users"},"op":"t"}`

	skipped = "note: source dbz: no truncate stands among the newest records, and Debezium skips them unless it is told: an emptied table's copies would stay " +
		"(set skipped.operations=none; for MySQL and MariaDB let topics.pattern take in the schema-change topic too, which tells of DROP and RENAME)"
	noJSON = " (partition 0, offset 0) (let the connector write value.converter=org.apache.kafka.connect.json.JsonConverter, or Avro's with topics.format: avro and topics.registry)"
)

// What the newest records show is told, with what mends it.
func TestCheckTellsWhatTheRecordsShow(t *testing.T) {
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"schemaType":"PROTOBUF","schema":"syntax = \"proto3\"; message A {}"}`)
	}))
	defer registry.Close()
	const dbz = "  - {name: dbz, topics: {pattern: 'dbz.*'}, first_start: latest}\n"
	with := func(more string) string { return strings.Replace(dbz, "'}", "', "+more+"}", 1) }
	of := func(value string) []*kgo.Record { return []*kgo.Record{record("dbz.shop.users", dbzKey, value)} }
	oldMail := func(hint string) string {
		return "5:100 warning: table shop.users: the old value of column email is not known, so that an update leaves its old key: the newest records of source dbz have no old row beside the key (" + hint + ")"
	}
	const full = "ALTER TABLE shop.users REPLICA IDENTITY FULL"
	const mysqlFullImage = "SET GLOBAL binlog_row_image = 'FULL', and let the sessions reconnect"
	for _, tt := range []struct {
		name, sources string
		records       []*kgo.Record
		problems      []string // of the mapping, but for those of tables that no record shows
		findings      []string
	}{
		{"nothing is wrong", dbz, of(mysqlFull), nil, []string{skipped}},
		{"a truncate is there", dbz, append(of(mysqlFull), of(truncated)...), nil, nil},
		{"our own feeder's", dbz, of(ours), nil, nil},
		{"rows alone", dbz, of(flatRow), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are rows alone, and the source does not say so (partition 0, offset 0) (set topics.format: unwrapped, or better let the connector write its envelope: " +
				"take ExtractNewRecordState out of transforms, since a row alone has no old values)", skipped}},
		{"rows alone under a schema", dbz, of(`{"schema":{"type":"struct","fields":[]},"payload":` + flatRow + `}`), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are rows alone, and the source does not say so (partition 0, offset 0) (set topics.format: unwrapped, or better let the connector write its envelope: " +
				"take ExtractNewRecordState out of transforms, since a row alone has no old values)", skipped}},
		{"envelopes where rows were told", with("format: unwrapped, table: shop.users, connector: mysql"), of(mysqlFull),
			[]string{"5:100 warning: table shop.users: source dbz is unwrapped, and column email is not of the record's key (id): an update has no old row, so that the key of its old value stays (" +
				"key by columns that never change, or let the connector write its envelope (no ExtractNewRecordState))"},
			[]string{"warning: source dbz, topic dbz.shop.users: the source says unwrapped, and its records are envelopes: they are read as such, and what is said here of old rows does not hold of them (set topics.format: debezium)", skipped}},
		{"Maxwell's", dbz, of(maxwellRow), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are Maxwell's, and the source does not say so (partition 0, offset 0) (set topics.format: maxwell)", skipped}},
		{"Debezium's in a source of Maxwell's", with("format: maxwell"), of(mysqlFull), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are Debezium's, and the source says maxwell (partition 0, offset 0) (set topics.format: debezium)"}},
		{"Protobuf, as the registry says", with("format: avro, registry: {url: '" + registry.URL + "'}"), of("\x00\x00\x00\x00\x07\x00abc"), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are of a kind that is not read: reading the value as Avro: schema id 7: it is PROTOBUF: only Avro is read" + noJSON, skipped}},
		{"a schema's id without a registry", dbz, of("\x00\x00\x00\x00\x07\x00abc"), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records name a schema of a registry: they are Avro, or Protobuf, which is not read (partition 0, offset 0) (if they are Avro, set topics.format: avro and topics.registry; else " +
				strings.TrimPrefix(noJSON, " (partition 0, offset 0) ("), skipped}},
		{"JSON Schema", dbz, of("\x00\x00\x00\x00\x07" + mysqlFull), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are JSON Schema's (a schema id, then JSON), which is not read" + noJSON, skipped}},
		{"Protobuf without a registry", dbz, of("\x0a\x03abc\x10\x01"), nil, []string{
			"error: source dbz, topic dbz.shop.users: its records are neither JSON nor Avro with a registry's schema: Protobuf and other binary forms are not read" + noJSON, skipped}},
		{"one of another kind among others", dbz, slices.Concat(of("\xff\x00{"), of(mysqlFull), of(mysqlFull)), nil, []string{
			"warning: source dbz, topic dbz.shop.users: 1 of 3 records are neither JSON nor Avro with a registry's schema: Protobuf and other binary forms are not read" + noJSON, skipped}},
		{"a tombstone with a broken key", dbz, []*kgo.Record{record("dbz.shop.users", "{broken", "")}, nil, []string{
			"warning: source dbz, topic dbz.shop.users: partition 0, offset 0: decoding a record of topic dbz.shop.users, table shop.users: reading the key: not JSON at byte 1: 'b'", skipped}},
		{"minimal row images", dbz, of(mysqlBare), []string{oldMail(mysqlFullImage)}, []string{skipped}},
		{"full ones since", dbz, append(of(mysqlBare), of(mysqlFull)...), nil, []string{skipped}},
		{"Postgres' default identity", dbz, debezium(t, "plain.postgres.shop.users", "dbz.shop.users"), []string{oldMail(full)}, []string{
			"note: source dbz: a snapshot's rows (op r) stand among the newest records: they are passed over (topics.snapshots: true has each be a delete)", skipped}},
		{"with schemas", with("snapshots: true"), debezium(t, "schema.postgres.shop.users", "dbz.shop.users"), []string{oldMail(full)}, []string{
			"note: source dbz: a snapshot's rows (op r) stand among the newest records: each is a delete, as topics.snapshots says", skipped}},
		{"MySQL's users", dbz, debezium(t, "plain.mysql.shop.users", "dbz.shop.users"), nil, []string{
			"note: source dbz: a snapshot's rows (op r) stand among the newest records: they are passed over (topics.snapshots: true has each be a delete)", skipped}},
		{"a large value that did not change", with("unavailable: other"), debezium(t, "plain.postgres.shop.bigrow", "dbz.shop.bigrow"), []string{strings.NewReplacer("5:100", "6:86", "users", "bigrow", "email", "big").Replace(oldMail(full))}, []string{
			"warning: source dbz, topic dbz.shop.bigrow: its records hold __debezium_unavailable_value, and topics.unavailable is other: it is taken for a value (take topics.unavailable away, or set unavailable.value.placeholder of the connector)", skipped}},
		{"the same, read right", dbz, debezium(t, "plain.postgres.shop.bigrow", "dbz.shop.bigrow"), []string{strings.NewReplacer("5:100", "6:86", "users", "bigrow", "email", "big").Replace(oldMail(full))}, []string{
			"warning: source dbz, topic dbz.shop.bigrow: table shop.bigrow: an update does not say column big, a large value that did not change: keys that are made of it are not deleted (ALTER TABLE shop.bigrow REPLICA IDENTITY FULL)", skipped}},
		{"heartbeats and transactions", dbz, append(debezium(t, "plain.mysql.transaction", "dbz.transaction"), debezium(t, "__debezium-heartbeat.plain.mysql", "dbz.beats")...), nil, []string{
			"note: source dbz: topic dbz.beats holds heartbeat records alone: they are read and passed over (narrow topics.pattern to spare the reading)",
			"note: source dbz: topic dbz.transaction holds transaction records alone: they are read and passed over (narrow topics.pattern to spare the reading)", skipped}},
		{"schema changes", dbz, slices.DeleteFunc(debezium(t, "plain.mysql.schema-changes", "dbz"), func(r *kgo.Record) bool { return !bytes.Contains(r.Value, []byte("CREATE TABLE")) }), nil, []string{
			"note: source dbz: no truncate stands among the newest records, and Debezium skips them unless it is told: an emptied table's copies would stay (set skipped.operations=none)"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			brokers := fakeBrokers(t)
			fill(t, brokers, nil, tt.records...)
			c, set := configured(t, brokers, tt.sources, samplesMapping)
			out := CheckTables(t.Context(), c, set, quiet)
			var findings, problems []string
			for _, f := range append(out.Findings, out.Notes...) {
				findings = append(findings, f.String())
			}
			for _, p := range out.Problems {
				if !strings.HasPrefix(p.What, "no change of") && !strings.HasPrefix(p.What, "nobody says") && !strings.HasPrefix(p.What, "source dbz is unwrapped: unless") {
					problems = append(problems, fmt.Sprintf("%d:%d %s: %s", p.Line, p.Col, p.Severity, hinted(p.What, p.Hint)))
				}
			}
			if diff := cmp.Diff(tt.findings, findings); diff != "" {
				t.Error("findings", diff)
			}
			if diff := cmp.Diff(tt.problems, problems); diff != "" {
				t.Error("problems", diff)
			}
		})
	}
}

// A decimal without its schema is base64 of digits that nobody knows the scale of.
func TestCheckTellsOfDecimalsThatNobodyCanRead(t *testing.T) {
	brokers := fakeBrokers(t)
	fill(t, brokers, nil, debezium(t, "plain.mysql.shop.listings", "dbz.shop.listings")...)
	const dbz = "  - {name: dbz, topics: {pattern: 'dbz.*'}, first_start: latest}\n"
	const want = "warning: source dbz, topic dbz.shop.listings: table shop.listings"
	check := func(mappings string) (got []string) {
		c, set := configured(t, brokers, dbz, mappings)
		for _, f := range CheckTables(t.Context(), c, set, quiet).Findings {
			got = append(got, f.String())
		}
		return got
	}
	got := check(samplesMapping)
	if len(got) != 1 || !strings.HasPrefix(got[0], want) || !strings.Contains(got[0], "column price") || !strings.Contains(got[0], "decimal.handling.mode=string") {
		t.Errorf("got %q", got)
	}
	if got := check(strings.Replace(samplesMapping, "org_id: int}", "org_id: int, price: 'decimal(12,4)'}", 1)); len(got) > 0 {
		t.Errorf("declared, %q", got)
	}
}
