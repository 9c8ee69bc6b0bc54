//go:build integration

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"invalidator/test/integration/services"
)

// liveTopic makes a topic of two partitions at the real broker, whose records keep the times that they are written with.
func liveTopic(t *testing.T) (topic string, cl *kgo.Client) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	topic, keep := "explain-"+strings.ToLower(rand.Text()[:10])+".shop.users", "CreateTime"
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 2, 1, map[string]*string{"message.timestamp.type": &keep}, topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cl.Close()
		if _, err := adm.DeleteTopic(context.Background(), topic); err != nil {
			t.Error(err)
		}
	})
	return topic, cl
}

// liveUser writes a change of a user at a time that lies so far back.
func liveUser(t *testing.T, cl *kgo.Client, topic string, partition int32, id int, back time.Duration) {
	t.Helper()
	r := &kgo.Record{Topic: topic, Partition: partition, Timestamp: time.Now().Add(-back), Key: fmt.Appendf(nil, `{"id":%d}`, id),
		Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"price":null},"source":{"connector":"mysql","name":"s","db":"shop","table":"users"},"op":"c"}`, id)}
	if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

const liveMapping = "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}:{price|default('none')}\"]}\n"

func liveFiles(topic, more string) map[string]string {
	return map[string]string{
		"mappings.d/a.yaml": liveMapping,
		"invalidator.yaml": fmt.Sprintf("kafka: {brokers: [\"%s\"]}\nsources:\n  - {name: s, topics: {pattern: '%s'%s}, first_start: latest}\n",
			services.Addr("KAFKA"), strings.ReplaceAll(topic, ".", `\.`), more),
	}
}

// explainedKeys are the keys of --json, each with its place.
func explainedKeys(t *testing.T, stdout string) (all []string) {
	t.Helper()
	for line := range strings.Lines(stdout) {
		var x explained
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, k := range x.Keys {
			all = append(all, fmt.Sprintf("%d/%d %s", x.Place.Partition, x.Place.Offset, k.Key))
		}
		if x.Error != "" {
			all = append(all, x.Error)
		}
	}
	return all
}

// --since begins at the first record of each partition that is as young, wherever in it that lies.
func TestExplainOfARealTopicBeginsWhereItIsTold(t *testing.T) {
	topic, cl := liveTopic(t)
	for i, back := range []time.Duration{3 * time.Hour, 2 * time.Hour, 40 * time.Minute, 0} {
		liveUser(t, cl, topic, 0, i, back)
	}
	liveUser(t, cl, topic, 1, 10, 90*time.Minute)
	liveUser(t, cl, topic, 1, 11, 30*time.Minute)
	files := liveFiles(topic, "")
	for _, c := range []struct{ since, want string }{
		{"24h", "0/0 user:0:none, 0/1 user:1:none, 0/2 user:2:none, 0/3 user:3:none, 1/0 user:10:none, 1/1 user:11:none"},
		{"1h", "0/2 user:2:none, 0/3 user:3:none, 1/1 user:11:none"},
		{"35m", "0/3 user:3:none, 1/1 user:11:none"},
		{"10m", "0/3 user:3:none"},
	} {
		code, stdout, stderr := invoke(t, files, "explain", "-c", "invalidator.yaml", "--topic", topic, "--json", "--since", c.since)
		if got := strings.Join(explainedKeys(t, stdout), ", "); code != exitOK || stderr != "" || got != c.want {
			t.Errorf("--since %s: exit code %d, %s, %s, want %s", c.since, code, got, stderr, c.want)
		}
	}
	code, _, stderr := invoke(t, files, "explain", "-c", "invalidator.yaml", "--topic", topic+"s")
	if code != exitFailed || !strings.Contains(stderr, "topic "+topic+"s does not exist") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// until is a writer that calls done as soon as a text was written to it.
type until struct {
	text string
	done func()
	all  bytes.Buffer
}

func (u *until) Write(b []byte) (int, error) {
	u.all.Write(b)
	if strings.Contains(u.all.String(), u.text) {
		u.done()
	}
	return len(b), nil
}

// --follow goes on with what comes, and ends well when it is interrupted.
func TestExplainFollowsARealTopic(t *testing.T) {
	topic, cl := liveTopic(t)
	liveUser(t, cl, topic, 1, 0, time.Hour)
	liveUser(t, cl, topic, 0, 1, 0)
	dir := folder(t, liveFiles(topic, ""))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	out := &until{text: "user:2:", done: cancel}
	first := &until{text: "user:1:", done: func() {
		if !strings.Contains(out.all.String(), "user:1:") { // once
			liveUser(t, cl, topic, 1, 2, 0)
		}
	}}
	code := run(ctx, []string{"explain", "-c", dir + "/invalidator.yaml", "--topic", topic, "--since", "5m", "--follow", "--json"}, nil, io.MultiWriter(first, out), &stderr)
	if got, want := strings.Join(explainedKeys(t, out.all.String()), ", "), "0/0 user:1:none, 1/1 user:2:none"; code != exitOK || got != want || stderr.Len() > 0 {
		t.Errorf("exit code %d, %s, %s, want %s", code, got, &stderr, want)
	}
}

const liveAvro = `{"type":"record","name":"Envelope","namespace":"s.shop.users","fields":[{"name":"after","type":{"type":"record","name":"Value","fields":[` +
	`{"name":"id","type":"long"},{"name":"price","type":["null",{"type":"bytes","logicalType":"decimal","precision":10,"scale":2,` +
	`"connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"2"}}]}]}},` +
	`{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"table","type":"string"}]}},` +
	`{"name":"op","type":"string"}]}`

// Avro is read with the source's registry, whether the record or a header of it names the schema.
func TestExplainOfARealTopicOfAvro(t *testing.T) {
	topic, cl := liveTopic(t)
	registry := srfake.New()
	defer registry.Close()
	id, _, err := registry.RegisterSchema(topic+"-value", sr.Schema{Schema: liveAvro, Type: sr.TypeAvro})
	if err != nil {
		t.Fatal(err)
	}
	prefix := func(id int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(id)) }
	body := func(user int64) []byte {
		b, err := avro.MustParse(liveAvro).Encode(map[string]any{
			"after": map[string]any{"id": user, "price": []byte{0x2f, 0x18}}, "source": map[string]any{"connector": "mysql", "db": "shop", "table": "users"}, "op": "c",
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for i, r := range []*kgo.Record{
		{Value: append(prefix(id), body(1)...), Timestamp: time.Now().Add(-time.Hour)},
		{Value: append(prefix(id), body(2)...)},
		{Value: body(3), Headers: []kgo.RecordHeader{{Key: "__value_schema_id", Value: prefix(id)}}},
		{Value: append(prefix(id+1), body(4)...)},
	} {
		if r.Topic = topic; r.Timestamp.IsZero() {
			r.Timestamp = time.Now()
		}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(i, err)
		}
	}
	files := liveFiles(topic, ", format: avro, registry: {url: \""+registry.URL()+"\"}")
	code, stdout, stderr := invoke(t, files, "explain", "-c", "invalidator.yaml", "--topic", topic, "--json", "--since", "30m")
	got := explainedKeys(t, stdout)
	if code != exitFailed || stderr != "" || len(got) != 3 || got[0] != "0/1 user:2:120.56" || got[1] != "0/2 user:3:120.56" ||
		!strings.Contains(got[2], fmt.Sprintf("id %d", id+1)) {
		t.Errorf("exit code %d, %q, %s", code, got, stderr)
	}
	_, stdout, _ = invoke(t, files, "mappings", "check", "-c", "invalidator.yaml", "--json")
	if want := fmt.Sprintf(`"topic":"%s"`, topic); strings.Contains(stdout, want) || !strings.Contains(stdout, "its records could not be read") {
		t.Errorf("a schema that the registry lacks: %s, want no %s", stdout, want)
	}
}
