//go:build integration

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/services"
)

// othersTopics makes topics under a new prefix on the real broker, with settings, and writes what they hold.
func othersTopics(t *testing.T, topics map[string]map[string]string, records ...*kgo.Record) (prefix string) {
	t.Helper()
	prefix = "others-" + strings.ToLower(rand.Text()[:10])
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")))
	if err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(cl)
	var names []string
	for name, settings := range topics {
		configs := map[string]*string{}
		for k, v := range settings {
			configs[k] = &v
		}
		names = append(names, prefix+name)
		if _, err := adm.CreateTopic(t.Context(), 2, 1, configs, prefix+name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		defer cl.Close()
		if _, err := adm.DeleteTopics(context.Background(), names...); err != nil {
			t.Error(err)
		}
	})
	for _, r := range records {
		r.Topic = prefix + r.Topic
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return prefix
}

// debezium are the records that real Debezium wrote.
func debezium(t *testing.T, name, topic string) (all []*kgo.Record) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(services.Root(), "testdata", "debezium-samples", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var s struct{ Key, Payload string }
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		r := &kgo.Record{Topic: topic, Key: []byte(s.Key)}
		if s.Payload != "" {
			r.Value = []byte(s.Payload)
		}
		all = append(all, r)
	}
	return all
}

// J2, the unwrapped source, beside what else can be wrong with topics that somebody else feeds: one check lists everything, with
// severity and what mends it, before any change is read, and fails on what is severe.
func TestJ2_CheckFindsWhatTopicsOfOthersCannotGive(t *testing.T) {
	const flat = `{"id":1,"email":"a@x.test"}`
	good := map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "retention.bytes": "-1"}
	records := []*kgo.Record{
		{Topic: ".flat.shop.users", Key: []byte(`{"id":1}`), Value: []byte(flat)},
		{Topic: ".undeclared", Key: []byte(`{"id":1}`), Value: []byte(flat)},
		{Topic: ".proto", Value: []byte("\x0a\x03abc\x10\x01")},
	}
	prefix := othersTopics(t, map[string]map[string]string{
		".flat.shop.users": good, ".undeclared": good, ".proto": good,
		".pg.shop.users": {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "retention.bytes": "-1"},
	}, slices.Concat(records, debezium(t, "plain.postgres.shop.users", ".pg.shop.users"))...)
	files := map[string]string{
		"invalidator.yaml": strings.NewReplacer("PREFIX", prefix, "BROKER", services.Addr("KAFKA")).Replace(`kafka: {brokers: ["BROKER"]}
cache: {ring: {file: ring.json}}
sources:
  - {name: flat, topics: {pattern: 'PREFIX\.flat\..*', format: unwrapped, connector: mysql}, first_start: latest}
  - {name: undeclared, topics: {pattern: 'PREFIX\.undeclared'}, first_start: latest}
  - {name: proto, topics: {pattern: 'PREFIX\.proto'}, first_start: latest}
  - {name: pg, topics: {pattern: 'PREFIX\.pg\..*'}, first_start: latest}
`),
		"ring.json":         `{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":"127.0.0.1:1","zone":"a"},"replicas":[]}]}`,
		"mappings.d/a.yaml": "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, columns: {id: bigint, email: text}, keys: [\"user:{id}:{email}\"]}\n",
	}
	code, stdout, _ := invoke(t, files, "check", "-c", "invalidator.yaml")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"warning: mapping MAPPING:5:92: table shop.users: source flat is unwrapped, and column email is not of the record's key (id): an update has no old row, so that the key of its old value stays (",
		"warning: mapping MAPPING:5:92: table shop.users: the old value of column email is not known, so that an update leaves its old key: the newest records of source pg have no old row beside the key (ALTER TABLE shop.users REPLICA IDENTITY FULL)",
		"error: source undeclared, topic PREFIX.undeclared: its records are rows alone, and the source does not say so (",
		"error: source proto, topic PREFIX.proto: its records are neither JSON nor Avro with a registry's schema: Protobuf and other binary forms are not read (",
		"error: kafka, topic PREFIX.pg.shop.users: cleanup.policy is compact: compaction removes changes that nobody has read yet, and before images with them (kafka-configs.sh --alter --entity-type topics --entity-name PREFIX.pg.shop.users --add-config cleanup.policy=delete)",
		"warning: kafka, topic PREFIX.pg.shop.users: message.timestamp.type is CreateTime: ",
		"note: source pg: a snapshot's rows (op r) stand among the newest records: they are passed over (topics.snapshots: true has each be a delete)",
		"note: source pg: no truncate stands among the newest records, and Debezium skips them unless it is told: an emptied table's copies would stay (set skipped.operations=none",
	} {
		file, err := filepath.Abs(filepath.Join("mappings.d", "a.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		want = strings.NewReplacer("PREFIX", prefix, "MAPPING", file).Replace(want)
		if n := strings.Count("\n"+stdout, "\n"+want); n != 1 {
			t.Errorf("%d times: %s", n, want)
		}
	}
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "our user may not") || strings.Contains(line, "topic "+prefix+".flat") && !strings.HasPrefix(line, "note: ") {
			t.Errorf("a broker without an authorizer, a topic that is right: %s", line)
		}
	}
	if t.Failed() {
		fmt.Println(stdout)
	}
}
