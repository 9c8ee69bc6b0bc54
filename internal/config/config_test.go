package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// The annotated example loads, and what it comments out is what the loader fills in.
func TestExampleLoads(t *testing.T) {
	t.Setenv("SHOP_PASSWORD", "p1")
	t.Setenv("LEDGER_PASSWORD", "a: b # c")
	c, err := Load("../../invalidator.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Sources[0].Password.Reveal(); got != "p1" {
		t.Errorf("password = %q", got)
	}
	if got := c.Sources[1].Password.Reveal(); got != "a: b # c" {
		t.Errorf("a password may hold any character, got %q", got)
	}
	if c.Cache.Settle != time.Second || c.Cache.Node.Queue != 8<<20 || c.Sources[0].MaxRecord != 1000<<10 || c.Sources[1].Slot != "invalidator_ledger" {
		t.Errorf("defaults: %+v", c)
	}
	if c.Mappings.Dir != filepath.Join("..", "..", "mappings.d") {
		t.Errorf("mappings.dir = %q, want it beside the file", c.Mappings.Dir)
	}
}

// Every default that the example states in a comment is the one in force: the file with its comments taken off gives the
// same configuration.
func TestExampleStatesDefaults(t *testing.T) {
	t.Setenv("SHOP_PASSWORD", "x")
	t.Setenv("LEDGER_PASSWORD", "x")
	data, err := os.ReadFile("../../invalidator.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Parse("x.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	var spelled strings.Builder
	for l := range strings.Lines(string(data)) {
		for _, d := range []string{"group:", "instance_id:", "topic_prefix:", "replication:", "partitions:", "max_ttl:", "settle:", "key:", "hot_prefix:", "owed_prefix:", "protocol:", "node:", "  connections:", "  queue:", "  timeout:", "server_id:", "max_record:", "on_gap:", "standby:", "heartbeat:", "allow_partial:", "first_start: earliest", "publication:", "slot:", "replay:", "window:", "  flush:", "    pace:", "    refill:", "storm:", "  rows:", "  rate:", "  pace:"} {
			if strings.Contains(l, "# "+d) && strings.HasPrefix(strings.TrimSpace(l), "# ") {
				l = strings.Replace(l, "# ", "", 1)
				break
			}
		}
		spelled.WriteString(l)
	}
	full, err := Parse("x.yaml", []byte(spelled.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, spelled.String())
	}
	if strings.Count(spelled.String(), "# group") != 0 {
		t.Fatal("the test did not uncomment anything")
	}
	a, b := *plain, *full
	if len(a.Sources) != len(b.Sources) || a.Kafka.Group != b.Kafka.Group || a.Cache.Node != b.Cache.Node || a.Cache.Settle != b.Cache.Settle || a.Cache.MaxTTL != b.Cache.MaxTTL || a.Replay != b.Replay || *a.Storm.Rows != *b.Storm.Rows || a.Storm.Rate != b.Storm.Rate || a.Storm.Pace != b.Storm.Pace || a.Cache.Ring.Etcd.OwedPrefix != b.Cache.Ring.Etcd.OwedPrefix || a.Cache.Ring.Etcd.OwedPrefix == "" || a.Kafka.Partitions != b.Kafka.Partitions {
		t.Errorf("a comment does not state the default:\n%+v\n%+v", a, b)
	}
	for i := range a.Sources {
		x, y := a.Sources[i], b.Sources[i]
		if x.Slot != y.Slot || x.OnGap != y.OnGap || x.FirstStart != y.FirstStart || x.MaxRecord != y.MaxRecord || x.TopicPrefix != y.TopicPrefix || x.Publication != y.Publication || x.Standby != y.Standby || x.Heartbeat != y.Heartbeat || x.AllowPartial != y.AllowPartial {
			t.Errorf("source %s:\n%+v\n%+v", x.Name, x, y)
		}
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	for _, tc := range []struct{ name, yaml, want string }{
		{"unknown field", "kafka:\n  brokers: [a:1]\n  borkers: [b:2]\n", `c.yaml:3: unknown field "borkers"`},
		{"doubled field", "kafka:\n  group: a\n  group: b\n", `c.yaml:3: mapping key "group" already defined at line 2`},
		{"no such variable", "sources:\n  - name: s\n    password: ${NO_SUCH_VARIABLE_HERE}\n", "c.yaml:3: environment variable NO_SUCH_VARIABLE_HERE is not set"},
		{"not a size", "cache:\n  node: {queue: lots}\n", `c.yaml:2: "lots" is not a size`},
		{"not a duration", "cache:\n  settle: soon\n", "c.yaml:2: cannot unmarshal str `soon` into time.Duration"},
		{"owed among the hot", "cache:\n  ring:\n    etcd: {endpoints: [a:1], owed_prefix: /cache/hot/owed/}\n", `c.yaml:3: owed_prefix "/cache/hot/owed/" and "/cache/hot/" overlap`},
		{"the ring among the owed", "cache:\n  ring:\n    etcd: {endpoints: [a:1], owed_prefix: /cache/}\n", `c.yaml:3: owed_prefix "/cache/" and "/cache/ring" overlap`},
		{"two homes", "cache:\n  ring:\n    file: r.json\n    etcd: {endpoints: [a:1]}\n", "c.yaml:2: a ring has one home"},
		{"source type", "sources:\n  - {name: s, type: oracle, hosts: [a:1], user: u, include: [a.b]}\n", `c.yaml:2: source s: type "oracle" is not known`},
		{"source twice", "sources:\n  - {name: s, topics: {pattern: a}, first_start: latest}\n  - {name: s, topics: {pattern: b}, first_start: latest}\n", `c.yaml:3: source "s" stands here twice`},
		{"first_start unsaid", "sources:\n  - {name: s, topics: {pattern: a}}\n", `c.yaml:2: source s: first_start ""`},
		{"format", "sources:\n  - {name: s, topics: {pattern: a, format: csv}, first_start: latest}\n", `c.yaml:2: source s: topics.format "csv" is not known`},
		{"binary", "sources:\n  - {name: s, topics: {pattern: a, binary: octal}, first_start: latest}\n", `topics.binary "octal" is not known`},
		{"placeholder of Maxwell", "sources:\n  - {name: s, topics: {pattern: a, format: maxwell, unavailable: x}, first_start: latest}\n", `Maxwell writes no placeholder`},
		{"snapshots", "sources:\n  - {name: s, topics: {pattern: a, snapshots: maybe}, first_start: latest}\n", "into bool"},
		{"binary of Maxwell", "sources:\n  - {name: s, topics: {pattern: a, format: maxwell, binary: hex}, first_start: latest}\n", `Maxwell always writes base64`},
		{"table", "sources:\n  - {name: s, topics: {pattern: a, format: unwrapped, table: users}, first_start: latest}\n", `topics.table "users" is not schema.table`},
		{"connector", "sources:\n  - {name: s, topics: {pattern: a, format: unwrapped, connector: oracle}, first_start: latest}\n", `topics.connector "oracle" is not known`},
		{"avro without a registry", "sources:\n  - {name: s, topics: {pattern: a, format: avro}, first_start: latest}\n", `topics.registry is missing`},
		{"registry of JSON", "sources:\n  - {name: s, topics: {pattern: a, registry: {url: 'http://a:1'}}, first_start: latest}\n", `is for the formats avro and unwrapped`},
		{"registry url", "sources:\n  - {name: s, topics: {pattern: a, format: avro, registry: {url: 'a:1'}}, first_start: latest}\n", `topics.registry.url "a:1" is not http`},
		{"table of Debezium", "sources:\n  - {name: s, topics: {pattern: a, table: a.b}, first_start: latest}\n", `are for format unwrapped`},
		{"topic prefix", "sources:\n  - {name: s, type: mysql, hosts: [a:1], user: u, include: [a.b], topic_prefix: 'a b'}\n", `c.yaml:2: source s: topic_prefix "a b"`},
		{"instance id", "kafka: {instance_id: 'a b'}\n", `c.yaml:1: instance_id "a b"`},
		{"own topic prefix", "kafka: {topic_prefix: 'a/b'}\n", `c.yaml:1: topic_prefix "a/b"`},
		{"heartbeat", "sources:\n  - {name: s, type: postgres, hosts: [a:1], user: u, database: d, include: [a.b], heartbeat: -1s}\n", `c.yaml:2: source s: heartbeat is -1s`},
		{"slot", "sources:\n  - {name: s, type: postgres, hosts: [a:1], user: u, database: d, include: [a.b], slot: Shop-1}\n", `c.yaml:2: source s: slot "Shop-1"`},
		{"negative connections", "cache:\n  node: {connections: -1}\n", "c.yaml:2: connections is -1"},
		{"not_found", "cache:\n  node: {not_found: maybe}\n", `c.yaml:2: not_found "maybe" is not known`},
		{"not_found of meta", "cache:\n  node: {not_found: verify}\n", "c.yaml:2: not_found: verify is for proxies"},
		{"user without a password", "cache:\n  node: {user: a}\n", "c.yaml:2: user and password are set together"},
		{"negative lag", "cache:\n  node: {max_lag: -1s}\n", "c.yaml:2: a duration of -1s is negative"},
		{"negative partitions", "kafka:\n  partitions: -1\n", "c.yaml:2: partitions is -1"},
		{"negative replication", "kafka:\n  replication: -1\n", "c.yaml:2: replication is -1"},
		{"too many replicas", "kafka:\n  replication: 70000\n", "c.yaml:2: replication is 70000"},
		{"a size beyond all memory", "cache:\n  node: {queue: 9999999999999GiB}\n", `"9999999999999GiB" is not a size`},
		{"an unclosed group", "sources:\n  - {name: s, topics: {pattern: 'a)|(b'}, first_start: latest}\n", `c.yaml:2: source s: topics.pattern "a)|(b"`},
		{"a flush at no pace", "replay:\n  flush: {pace: -1}\n", "c.yaml:2: replay.flush.pace is -1 (it must not be below zero)"},
		{"a refill of parts of a second", "replay:\n  flush: {refill: 1500ms}\n", "c.yaml:2: refill is 1.5s (whole seconds, such as 10s)"},
		{"a refill backwards", "replay:\n  flush: {refill: -1s}\n", "c.yaml:2: a duration of -1s is negative"},
		{"a prometheus that is no URL", "replay:\n  flush: {prometheus: 'prometheus:9090'}\n", `c.yaml:2: prometheus "prometheus:9090" is no URL (write http://host:9090)`},
		{"a token for nobody", "admin: {token: t}\n", "c.yaml:1: token is set and listen is not"},
		{"remote without a token", "admin: {listen: 'a:1', remote: true}\n", "c.yaml:1: remote is set and token is not"},
		{"tab", "kafka:\n\tgroup: a\n", "c.yaml:2: found character that cannot start any token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("c.yaml", []byte(tc.yaml))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// A source's name may have capitals; a replication slot's may not.
func TestDefaultSlotIsASlotName(t *testing.T) {
	c, err := Parse("c.yaml", []byte("sources: [{name: Shop-EU, type: postgres, hosts: [a:1], user: u, database: d, include: [a.b]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Sources[0].Slot; got != "invalidator_shop_eu" {
		t.Errorf("slot %q", got)
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Parse("c.yaml", []byte("kafka:\n  sasl: {mechanism: plain, user: u, password: {file: "+file+"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Kafka.SASL.Password.Reveal(); got != "hunter2" {
		t.Errorf("password from a file = %q", got)
	}
	if err := os.WriteFile(file, []byte("hunter3\nnot this line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.Kafka.SASL.Password.Reveal(); got != "hunter3" {
		t.Errorf("the file was replaced: %q", got)
	}
	for _, gone := range []func() error{func() error { return os.Truncate(file, 0) }, func() error { return os.Remove(file) }} { // as while it is written anew
		if err := gone(); err != nil {
			t.Fatal(err)
		}
		if got := c.Kafka.SASL.Password.Reveal(); got != "hunter2" {
			t.Errorf("the file has nothing: %q, want what it had at the start", got)
		}
	}
}

// A configuration with a secret in every field that can hold one shows none of them, however it is printed, and every field that is called
// like a secret is one.
func TestSecretsAreNeverPrinted(t *testing.T) {
	c := Config{Sources: []Source{{Topics: &Topics{}}}}
	n := fill(t, reflect.ValueOf(&c).Elem(), "")
	if n < 9 {
		t.Errorf("%d secrets were found, want all", n)
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{string(text), fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c.Kafka.SASL), fmt.Sprintf("%#v", c.Sources[0].Topics.Registry)} {
		if strings.Contains(shown, "hunter2") {
			t.Errorf("printed: %s", shown)
		}
	}
	bad := URL("http://u:hunter2@%zz")
	if shown := fmt.Sprintf("%s %v %q %#v", bad, bad, bad, bad); strings.Contains(shown, "hunter2") {
		t.Errorf("printed: %s", shown)
	}
}

// fill puts a secret wherever one can be, and counts them.
func fill(t *testing.T, v reflect.Value, name string) (n int) {
	switch {
	case v.Type() == reflect.TypeFor[Secret]():
		v.Set(reflect.ValueOf(NewSecret("hunter2")))
		return 1
	case v.Type() == reflect.TypeFor[URL]():
		v.SetString("http://u:hunter2@host:1")
		return 1
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(t, v.Elem(), name)
	case v.Kind() == reflect.Slice && v.Len() > 0:
		return fill(t, v.Index(0), name)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				n += fill(t, v.Field(i), f.Name)
			}
		}
	case v.Kind() == reflect.String && regexp.MustCompile("(?i)password|token|secret|url|dsn").MatchString(name):
		t.Errorf("%s holds a secret as plain text", name)
	}
	return n
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("kafka: {brokers: [a:1]}"))
	f.Add([]byte("sources:\n- {name: s, topics: {pattern: '['}}"))
	f.Add([]byte("a: &x [*x]"))
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = Parse("c.yaml", data) })
}
