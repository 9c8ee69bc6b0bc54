package sink

import (
	"strings"
	"testing"
)

// What a kind does not use is refused, since whoever wrote it expects keys to lie elsewhere.
func TestKindsRefuse(t *testing.T) {
	one := func(fields string) string { return `{"id": "a", "primary": {"addr": "a:1"}` + fields + `}` }
	for name, c := range map[string]struct{ record, want string }{
		"a hash of its own":         {`"hash": "md5", "shards": [` + one("") + `]`, "hash: a ring of kind points160 has its own hash"},
		"a hash nobody knows":       {`"kind": "twemproxy", "hash": "sha1", "shards": [` + one("") + `]`, `hash "sha1" is not known (use one of crc16, crc32, `},
		"libmemcached's hash":       {`"kind": "ketama", "hash": "crc16", "shards": [` + one("") + `]`, `hash "crc16" is not known (use one of md5, one_at_a_time)`},
		"a tag with no proxy":       {`"kind": "ketama", "hash_tag": "{}", "shards": [` + one("") + `]`, "hash_tag: clients of a ring of kind ketama hash the whole key"},
		"a tag of one":              {`"kind": "twemproxy", "hash_tag": "{", "shards": [` + one("") + `]`, `hash tag "{" is not two characters`},
		"elsewhere":                 {`"elsewhere": ["gutter", "moon"], "shards": [` + one("") + `]`, `elsewhere[1]: "moon" is not known (use auto_eject_hosts, gutter, failover)`},
		"a server on our ring":      {`"shards": [` + one(`, "server": "b:1"`) + `]`, "shards[0].server: a ring of kind points160 is not made of servers' names"},
		"a server of no port":       {`"kind": "ketama", "shards": [` + one(`, "server": "b"`) + `]`, "shards[0].server: address \"b\" has no port"},
		"a name in libmemcached":    {`"kind": "ketama", "shards": [` + one(`, "name": "b"`) + `]`, "shards[0].name: only twemproxy gives its servers names"},
		"a name and a server":       {`"kind": "twemproxy", "shards": [` + one(`, "name": "b", "server": "b:1"`) + `]`, "on the ring by that alone"},
		"a name of two words":       {`"kind": "twemproxy", "shards": [` + one(`, "name": "b c"`) + `]`, "shards[0].name: byte 2 is 0x20"},
		"weights in plain ketama":   {`"kind": "ketama", "shards": [` + one(`, "weight": 2`) + `]`, "know no weights (leave it out, or use ketama_weighted)"},
		"weights in modulo":         {`"kind": "modulo", "shards": [` + one(`, "weight": 2`) + `]`, "know no weights (leave it out)"},
		"a server twice":            {`"kind": "ketama", "shards": [` + one("") + `, {"id": "b", "server": "a:1", "primary": {"addr": "b:1"}}]`, `the shard at index 0 has the same name on the ring, "a:1"`},
		"the port of memcached":     {`"kind": "ketama", "shards": [` + one(`, "server": "x:11211"`) + `, {"id": "b", "server": "x:11211", "primary": {"addr": "b:1"}}]`, `the same name on the ring, "x"`},
		"in previous, all the same": {`"epoch": 2, "kind": "modulo", "shards": [` + one("") + `], "previous": {"epoch": 1, "shards": [` + one(`, "weight": 3`) + `]}`, "previous.shards[0].weight"},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"epoch": 1, ` + c.record + `}`
			if strings.HasPrefix(c.record, `"epoch"`) {
				text = `{` + c.record + `}`
			}
			if _, err := ParseRecord("ring.json", []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestTagged(t *testing.T) {
	for key, want := range map[string]string{
		"a{b}c": "b", "{a}{b}": "a", "a{}b{c}": "a{}b{c}", "a{b": "a{b", "a}b{c": "a}b{c", "}a{b}": "b", "plain": "plain",
	} {
		if got := tagged(key, "{}"); got != want {
			t.Errorf("%q: got %q, want %q", key, got, want)
		}
	}
	if got := tagged("a{b}c", ""); got != "a{b}c" {
		t.Errorf("without a tag: got %q", got)
	}
	if got := tagged("a$b$c", "$$"); got != "b" {
		t.Errorf("one character twice: got %q", got)
	}
}
