package sink

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseRecord(t *testing.T) {
	got, err := ParseRecord("ring.json", []byte(`{
		"epoch": 7, "at": "2026-11-30T10:00:00.000Z", "kind": "points160", "key_prefix": "shop/",
		"shards": [
			{"id": "s00", "weight": 2, "primary": {"addr": "10.0.1.5:11211", "zone": "a"},
			 "replicas": [{"addr": "[::1]:11211", "zone": "b", "seeding": true}]},
			{"id": "s01", "primary": {"addr": "mc_1.shop-cache:11211"}}],
		"previous": {"epoch": 5, "shards": [{"id": "s00", "primary": {"addr": "10.0.1.5:11211"}, "replicas": []}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Record{
		Epoch: 7, At: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), Kind: "points160", KeyPrefix: "shop/",
		Shards: []Shard{
			{ID: "s00", Weight: 2, Primary: Node{"10.0.1.5:11211", "a"}, Replicas: []Replica{{"[::1]:11211", "b", true}}},
			{ID: "s01", Weight: 1, Primary: Node{Addr: "mc_1.shop-cache:11211"}},
		},
		Previous: &Previous{5, []Shard{{ID: "s00", Weight: 1, Primary: Node{Addr: "10.0.1.5:11211"}, Replicas: []Replica{}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// What is left out: kind is points160, a weight is 1, there is no prefix, no replica, no previous.
func TestParseRecordFillsIn(t *testing.T) {
	got, err := ParseRecord("ring.json", []byte(`{"epoch": 1, "shards": [{"id": "s", "primary": {"addr": "a:1"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Record{Epoch: 1, Kind: "points160", Shards: []Shard{{ID: "s", Weight: 1, Primary: Node{Addr: "a:1"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// A node may serve several shards: after a promotion it is primary of two, or primary of one and replica of another.
func TestParseRecordTakesANodeOfSeveralShards(t *testing.T) {
	if _, err := ParseRecord("ring.json", []byte(`{"epoch": 1, "shards": [
		{"id": "s0", "primary": {"addr": "a:1"}}, {"id": "s1", "primary": {"addr": "a:1"}},
		{"id": "s2", "primary": {"addr": "b:1"}, "replicas": [{"addr": "a:1"}]}]}`)); err != nil {
		t.Error(err)
	}
}

func TestParseRecordSaysWhatIsWrong(t *testing.T) {
	const (
		s0  = `{"id": "s0", "primary": {"addr": "a:1"}}`
		s1  = `{"id": "s1", "primary": {"addr": "b:1"}}`
		bad = "write host:port, such as 10.0.1.5:11211, mc1.example:11211 or [::1]:11211"
	)
	addr := func(a string) string {
		return "{\"epoch\": 1, \"shards\": [\n" + s0 + ",\n{\"id\": \"s1\",\n\"primary\": {\"addr\": \"" + a + "\"}}]}"
	}
	for _, c := range []struct{ name, record, want string }{
		{"doubled shard", "{\"epoch\": 1, \"shards\": [\n" + s0 + ",\n" + s1 + ",\n" + s0 + "]}",
			`ring.json:4: shard "s0": shards[2].id: the id is taken by the shard at index 0 (give every shard an id of its own)`},
		{"doubled shard of previous", `{"epoch": 2, "shards": [` + s0 + `], "previous": {"epoch": 1, "shards": [` + s0 + "," + s0 + `]}}`,
			`ring.json:1: shard "s0": previous.shards[1].id: the id is taken by the shard at index 0 (give every shard an id of its own)`},
		{"unknown field", "{\"epoch\": 1,\n\"shard\": [" + s0 + "]}",
			`ring.json:2: shard: unknown field (correct its name or remove it)`},
		{"unknown field in a shard", `{"epoch": 1, "shards": [{"id": "s0", "primary": {"addr": "a:1", "seeding": true}}]}`,
			`ring.json:1: shards[0].primary.seeding: unknown field (correct its name or remove it)`},
		{"unknown field of an odd name", `{"epoch": 1, "a\nb": 1}`,
			`ring.json:1: "a\nb": unknown field (correct its name or remove it)`},
		{"a field of other case", `{"Epoch": 1}`,
			`ring.json:1: Epoch: unknown field (correct its name or remove it)`},
		{"doubled field", "{\"epoch\": 1,\n\"epoch\": 2, \"shards\": [" + s0 + "]}",
			`ring.json:2: epoch: the field is there twice (remove one of them)`},
		{"trailing text", `{"epoch": 1, "shards": [` + s0 + "]}\n{}",
			"ring.json:2: not valid JSON: invalid character '{' after top-level value (correct the JSON)"},
		{"half a file", `{"epoch": 1, "shards": [` + "\n{",
			`ring.json:2: shards[0]: the text ends in the middle of the JSON (write the file whole, under another name, and rename it)`},
		{"empty file", ``,
			`ring.json:1: the text ends in the middle of the JSON (write the file whole, under another name, and rename it)`},
		{"not JSON", `epoch: 1`,
			"ring.json:1: not valid JSON: invalid character 'e' at start of value (correct the JSON)"},
		{"a list", `[]`, `ring.json:1: a list does not belong here (write an object)`},
		{"null", `null`, `ring.json:1: epoch: the epoch is missing or below 1 (0) (number records from 1 and raise it with each)`},
		{"text for a number", `{"epoch": "7"}`, `ring.json:1: epoch: a text does not belong here (write a whole number)`},
		{"a fraction", `{"epoch": 1, "shards": [{"id": "s0", "weight": 1.5}]}`,
			`ring.json:1: shards[0].weight: cannot read a number: invalid syntax (write a whole number)`},
		{"not a time", `{"epoch": 1, "at": "yesterday"}`,
			`ring.json:1: at: cannot read a text: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006" (write a time such as 2026-11-30T10:00:00Z)`},
		{"no epoch", `{"shards": [` + s0 + `]}`,
			`ring.json:1: epoch: the epoch is missing or below 1 (0) (number records from 1 and raise it with each)`},
		{"no shards", "{\"epoch\": 1,\n\"shards\": []}", `ring.json:2: shards: there are no shards (list at least one)`},
		{"other kind", `{"epoch": 1, "kind": "rendezvous", "shards": [` + s0 + `]}`,
			`ring.json:1: kind: ring kind "rendezvous" is not known (use one of points160, ketama, ketama_weighted, twemproxy, modulo)`},
		{"no id", `{"epoch": 1, "shards": [{"primary": {"addr": "a:1"}}]}`,
			`ring.json:1: shards[0].id: the id is missing or empty (name the shard as the clients do)`},
		{"weight of nothing", `{"epoch": 1, "shards": [{"id": "s0", "weight": 0, "primary": {"addr": "a:1"}}]}`,
			`ring.json:1: shard "s0": shards[0].weight: weight 0 is not between 1 and 1000 (leave it out for 1; a shard without keys is removed from the list)`},
		{"weight without bound", `{"epoch": 1, "shards": [{"id": "s0", "weight": 100000, "primary": {"addr": "a:1"}}]}`,
			`ring.json:1: shard "s0": shards[0].weight: weight 100000 is not between 1 and 1000 (leave it out for 1; a shard without keys is removed from the list)`},
		{"node twice in a shard", `{"epoch": 1, "shards": [{"id": "s0", "primary": {"addr": "a:1"}, "replicas": [{"addr": "b:1"}, {"addr": "a:1"}]}]}`,
			`ring.json:1: shard "s0": shards[0].replicas[1].addr: node a:1 is in this shard twice (remove one of them)`},
		{"no primary", `{"epoch": 1, "shards": [{"id": "s0"}]}`,
			`ring.json:1: shard "s0": shards[0].primary.addr: the address is missing or empty (` + bad + `)`},
		{"empty replica", `{"epoch": 1, "shards": [{"id": "s0", "primary": {"addr": "a:1"}, "replicas": [{}]}]}`,
			`ring.json:1: shard "s0": shards[0].replicas[0].addr: the address is missing or empty (` + bad + `)`},
		{"address without port", addr("10.0.1.5"),
			`ring.json:4: shard "s1": shards[1].primary.addr: address "10.0.1.5" has no port, or an IPv6 host without brackets (` + bad + `)`},
		{"bare IPv6", addr("::1:11211"),
			`ring.json:4: shard "s1": shards[1].primary.addr: address "::1:11211" has no port, or an IPv6 host without brackets (` + bad + `)`},
		{"port 0", addr("a:0"), `ring.json:4: shard "s1": shards[1].primary.addr: address "a:0": the port is not a number from 1 to 65535 (` + bad + `)`},
		{"port of text", addr("a:memcached"), `ring.json:4: shard "s1": shards[1].primary.addr: address "a:memcached": the port is not a number from 1 to 65535 (` + bad + `)`},
		{"no host", addr(":11211"), `ring.json:4: shard "s1": shards[1].primary.addr: address ":11211": the host is neither a name nor an IP address (` + bad + `)`},
		{"host with a space", addr("a b:11211"), `ring.json:4: shard "s1": shards[1].primary.addr: address "a b:11211": the host is neither a name nor an IP address (` + bad + `)`},
		{"a name in brackets", addr("[mc1]:11211"), `ring.json:4: shard "s1": shards[1].primary.addr: address "[mc1]:11211": the host is neither a name nor an IP address (` + bad + `)`},
		{"prefix with a space", `{"epoch": 1, "key_prefix": "my shop", "shards": [` + s0 + `]}`,
			`ring.json:1: key_prefix: byte 3 is 0x20, a space or a control byte (write the prefix that the clients use)`},
		{"prefix without end", `{"epoch": 1, "key_prefix": "` + strings.Repeat("p", 250) + `", "shards": [` + s0 + `]}`,
			`ring.json:1: key_prefix: it is 250 bytes long and leaves no room for a key (prefix and key have 250 bytes together)`},
		{"previous is not older", "{\"epoch\": 7, \"shards\": [" + s0 + "],\n\"previous\": {\n\"epoch\": 7, \"shards\": [" + s0 + `]}}`,
			`ring.json:3: previous.epoch: previous epoch 7 is not between 1 and 6 (write the epoch of the ring that was replaced)`},
		{"previous without shards", `{"epoch": 7, "shards": [` + s0 + `], "previous": {"epoch": 6}}`,
			`ring.json:1: previous.shards: there are no shards (list at least one)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseRecord("ring.json", []byte(c.record))
			var bad *RecordError
			if !errors.As(err, &bad) {
				t.Fatalf("got %T %v, want a *RecordError", err, err)
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// A record that is taken can be written and read again, and gives a topology; an error is one line.
func FuzzParseRecord(f *testing.F) {
	for _, seed := range []string{twoShards, resize, prefixed, `{}`, `[]`, `null`, `{"epoch": 1, "epoch": 2}`,
		`{"epoch": 1, "shards": [{"id": "s", "weight": 1e3, "primary": {"addr": "[::1]:1"}}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecord("ring", data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		top, err := NewTopology(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(top.AppendCopies(nil, "user:1", 1)) < 2 {
			t.Fatal("a key and its hot copy have no owner")
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRecord("ring", written)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("read again (-first +second):\n%s", diff)
		}
	})
}
