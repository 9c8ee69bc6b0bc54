package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ketamaRing is a record of libmemcached's ring, and the owners of its golden vectors: those of the client itself.
func ketamaRing(t *testing.T) (record, owners string) {
	t.Helper()
	data, err := os.ReadFile("../../sink/testdata/clients/owners.json")
	if err != nil {
		t.Fatal(err)
	}
	var rings []struct {
		Kind    string `json:"kind"`
		Servers []struct {
			Server string `json:"server"`
		} `json:"servers"`
		Owners string `json:"owners"`
	}
	if err := json.Unmarshal(data, &rings); err != nil {
		t.Fatal(err)
	}
	r := rings[0]
	var shards, lines []string
	for i, s := range r.Servers {
		shards = append(shards, fmt.Sprintf(`{"id": "s%d", "server": %q, "primary": {"addr": "10.0.0.%d:11211"}}`, i, s.Server, i))
	}
	for i := range 2000 {
		lines = append(lines, fmt.Sprintf("user:%d:profile\t%s", i, r.Servers[r.Owners[5*i]-'0'].Server)) // each fifth key is of this form
	}
	return fmt.Sprintf(`{"epoch": 1, "kind": %q, "shards": [%s]}`, r.Kind, strings.Join(shards, ", ")), strings.Join(lines, "\n") + "\n"
}

// H11: the application's own file of keys and owners is compared with the ring, key by key.
func TestRingVerify(t *testing.T) {
	dir := t.TempDir()
	record, owners := ketamaRing(t)
	ring := file(t, dir, "ring.json", record)
	ours := file(t, dir, "ours.json", strings.Replace(record, `"kind": "ketama"`, `"kind": "ketama_weighted"`, 1))
	app := file(t, dir, "owners.tsv", owners)
	one := file(t, dir, "one.tsv", strings.Replace(owners, "user:7:profile\t127.0.0.1", "user:7:profile\t127.0.0.9", 1))
	id := strings.SplitN(strings.SplitN(owners, "\n", 2)[0], "\t", 2)[1]
	shard := map[string]string{"127.0.0.11:23100": "s0", "127.0.0.12:11211": "s1", "127.0.0.13:23102": "s2"}[id]
	for _, tc := range []struct {
		name           string
		args           []string
		stdin          string
		code           int
		stdout, stderr string
	}{
		{"all are equal", []string{"--ring", ring, app}, "", 0, "2000 keys: every owner is the ring's\n", ""},
		{"another ring", []string{"--ring", ours, app}, "", 1, "keys (", ""},
		{"one key", []string{"--ring", ring, one}, "", 1, "line 8: user:7:profile: the application has it on 127.0.0.9", ""},
		{"its share", []string{"--ring", ring, one}, "", 1, "1 of 2000 keys (0.05 %) have another owner", ""},
		{"as JSON", []string{"--ring", ring, "--json", one}, "", 1, `{"keys":2000,"differ":1,"first":[{"key":"user:7:profile","line":8,"owner":"127.0.0.9`, ""},
		{"lines of JSON, by id", []string{"--ring", ring, "-"}, `{"key": "user:0:profile", "owner": "` + shard + `"}` + "\n\n" + `{"key_base64": "dXNlcjowOnByb2ZpbGU=", "owner": "` + id + `"}`, 0, "2 keys: every", ""},
		{"by node", []string{"--ring", ring, "-"}, "user:0:profile\t10.0.0." + shard[1:] + ":11211\r\n", 0, "1 keys", ""},
		{"no keys", []string{"--ring", ring, "-"}, "\n", 1, "", "nothing was compared"},
		{"no owner", []string{"--ring", ring, "-"}, "user:0:profile\n", 1, "", "-:1: the line has no key and owner"},
		{"no JSON", []string{"--ring", ring, "-"}, "user:0\ts0\n{\"key\": 1}\n", 1, "", "-:2: reading the line as JSON"},
		{"no base64", []string{"--ring", ring, "-"}, `{"key_base64": "!", "owner": "s0"}`, 1, "", "key_base64"},
		{"a key that cannot be", []string{"--ring", ring, "-"}, strings.Repeat("k", 251) + "\ts0\n", 1, "", "it is 251 bytes long"},
		{"no file", []string{"--ring", ring, filepath.Join(dir, "none")}, "", 1, "", "no such file"},
		{"no ring", []string{app}, "", 1, "", "which ring?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := invalidator(t, tc.stdin, append([]string{"ring", "verify"}, tc.args...)...)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("got %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
	_, stdout, _ := invalidator(t, "", "ring", "verify", "--ring", ours, app)
	if lines := strings.Count(stdout, "\n"); lines != verifyShown+1 {
		t.Errorf("got %d lines, want the first %d differences and their share:\n%s", lines, verifyShown, stdout)
	}
}
