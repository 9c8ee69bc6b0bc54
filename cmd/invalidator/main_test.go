package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// invalidator runs a command line in this process.
func invalidator(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// file writes a file and returns its path.
func file(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const badMapping = "version: 1\nteam: a\ncontact: '#a'\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: ['other:{id}']\n"

const wrongTest = "version: 1\nteam: a\ncontact: '#a'\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: ['user:{id}']\n" +
	"tests:\n  - {name: wrong, table: shop.users, after: {id: 1}, keys: ['user:2']}\n"

// 0: it worked; 1: it did not; 2: the command line is wrong. stdout carries what was asked, stderr the rest.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Dir(file(t, dir, "bad/a.yaml", badMapping))
	wrong := filepath.Dir(file(t, dir, "wrong/a.yaml", wrongTest))
	broken := file(t, dir, "broken.yaml", "kafka:\n  borkers: []\n")
	empty := file(t, dir, "empty.yaml", "cache: {ring: {file: none.json}}\nmappings: {dir: .}\n")
	for _, tc := range []struct {
		name           string
		args           []string
		stdin          string
		code           int
		stdout, stderr string // a part of each
	}{
		{"no command", nil, "", 2, "", "invalidator --help"},
		{"unknown command", []string{"frobnicate"}, "", 2, "", "frobnicate"},
		{"unknown flag", []string{"run", "--frobnicate"}, "", 2, "", "unknown flag"},
		{"help", []string{"--help"}, "", 0, "mappings", ""},
		{"help of a command", []string{"explain", "--help"}, "", 0, "--mappings", ""},
		{"log level", []string{"--log-level", "loud", "version"}, "", 2, "", "debug, info, warn or error"},
		{"log format", []string{"--log-format", "xml", "version"}, "", 2, "", "text or json"},
		{"version", []string{"version"}, "", 0, "invalidator ", ""},
		{"run without a file", []string{"run", "-c", dir + "/none.yaml"}, "", 1, "", "--config"},
		{"run with a wrong file", []string{"run", "-c", broken}, "", 1, "", broken + `:2: unknown field "borkers"`},
		{"run without a source", []string{"run", "-c", empty}, "", 1, "", "kafka.brokers"},
		{"feed without a source", []string{"feed", "-c", empty}, "", 1, "", "nothing to do"},
		{"feed an unknown source", []string{"feed", "-c", empty, "--source", "x"}, "", 1, "", `"x"`},
		{"check without anything", []string{"check", "-c", empty}, "", 1, "errors: ", ""},
		{"status without a broker", []string{"status", "-c", empty}, "", 1, "", "kafka.brokers"},
		{"mappings check", []string{"mappings", "check", "testdata/mappings"}, "", 0, "1 file, 6 templates, fingerprint ", ""},
		{"mappings check finds an error", []string{"mappings", "check", bad}, "", 1, "a.yaml:8:", ""},
		{"mappings check as JSON", []string{"mappings", "check", "--json", bad}, "", 1, `"line":8`, ""},
		{"mappings check without a folder", []string{"mappings", "check", dir + "/none"}, "", 2, "", "none"},
		{"mappings test", []string{"mappings", "test", "../../mappings.d"}, "", 0, "tests passed", ""},
		{"mappings test fails", []string{"mappings", "test", wrong}, "", 1, "0 of 1 tests passed", ""},
		{"mappings test as JSON", []string{"mappings", "test", "--json", wrong}, "", 1, `"wrong"`, ""},
		{"explain nonsense", []string{"explain", "--mappings", "testdata/mappings"}, "{nonsense\n", 1, "error: ", ""},
		{"explain with a wrong mapping", []string{"explain", "--mappings", bad}, "", 1, "", "a.yaml:8:"},
		{"explain a missing file", []string{"explain", "--mappings", "testdata/mappings", dir + "/none"}, "", 2, "", "none"},
		{"hot without a ring", []string{"explain", "--mappings", "testdata/mappings", "--hot", broken}, "", 2, "", "--hot needs --ring"},
		{"locate without a ring", []string{"ring", "locate", "a"}, "", 1, "", "which ring?"},
		{"locate with two", []string{"ring", "locate", "--ring", "testdata/ring.json", "-c", broken, "a"}, "", 1, "", "not both"},
		{"locate without a key", []string{"ring", "locate", "--ring", "testdata/ring.json"}, "", 2, "", "keys"},
		{"locate a bad key", []string{"ring", "locate", "--ring", "testdata/ring.json", strings.Repeat("k", 251), "c"}, "", 1, "c\n  shard ", "it is 251 bytes long"},
		{"locate a key with a space", []string{"ring", "locate", "--ring", "testdata/ring.json", "a b"}, "", 0, "\"a b\"\n  shard ", ""},
		{"locate in base64", []string{"ring", "locate", "--ring", "testdata/ring.json", "--base64", "YQD/"}, "", 0, `"a\x00\xff"` + "\n  shard ", ""},
		{"locate what is no base64", []string{"ring", "locate", "--ring", "testdata/ring.json", "--base64", "a b", "Yw=="}, "", 1, "c\n  shard ", `key "a b" is not in base64`},
		{"locate as JSON", []string{"ring", "locate", "--ring", "testdata/ring.json", "--json", "--base64", "YSD/"}, "", 0, `{"key":"a \ufffd","key_base64":"YSD/","hash":`, ""},
		{"locate in no ring", []string{"ring", "locate", "--ring", broken, "a"}, "", 1, "", broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := invalidator(t, tc.stdin, tc.args...)
			if code != tc.code || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("exit %d, want %d\nstdout %q, want %q in it\nstderr %q, want %q in it", code, tc.code, stdout, tc.stdout, stderr, tc.stderr)
			}
		})
	}
}

// Every recorded Debezium record is explained: what it deletes, or why it deletes nothing.
func TestExplainGolden(t *testing.T) {
	samples, err := filepath.Glob("../../testdata/debezium-samples/*.jsonl")
	if err != nil || len(samples) == 0 {
		t.Fatal("no samples", err)
	}
	var got strings.Builder
	for _, s := range samples {
		code, stdout, stderr := invalidator(t, "", "explain", "--json", "--mappings", "testdata/mappings", "--ring", "testdata/ring.json", s)
		if code != 0 {
			t.Errorf("%s: exit %d: %s", s, code, stderr)
		}
		got.WriteString("# " + filepath.Base(s) + "\n" + stdout)
	}
	golden(t, "testdata/explain.golden", got.String())
}

// golden compares with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (go test -update writes it):\n%s", path, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")))
	}
}

// One record from standard input, both addresses, every copy; op r only where it is asked for.
func TestExplain(t *testing.T) {
	const line = `{"topic":"shop.shop.users","key":"{\"id\":1}","payload":"{\"before\":{\"id\":1,\"email\":\"A@x.test\"},\"after\":{\"id\":1,\"email\":\"b@x.test\"},\"source\":{\"connector\":\"mysql\",\"db\":\"shop\",\"table\":\"users\"},\"op\":\"u\"}"}`
	keys := func(stdin string, more ...string) (out []string, line explained) {
		code, stdout, stderr := invalidator(t, stdin, append([]string{"explain", "--json", "--mappings", "testdata/mappings"}, more...)...)
		if code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), &line); err != nil {
			t.Fatal(err)
		}
		for _, k := range line.Keys {
			out = append(out, k.Key)
			for _, c := range k.Copies {
				out = append(out, c.Node+" "+c.Key)
			}
		}
		return out, line
	}
	got, _ := keys(line)
	if want := []string{"user:1", "user:by-email:a@x.test", "user:by-email:b@x.test"}; !cmp.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	hot := file(t, t.TempDir(), "hot.json", `{"user:1": {"copies": 2}}`)
	if got, _ := keys(line, "--ring", "testdata/ring.json", "--hot", hot); !strings.Contains(strings.Join(got, " "), " user:1#1 ") || !strings.Contains(strings.Join(got, " "), " user:1#2 ") {
		t.Errorf("a hot key's copies are missing: %q", got)
	}
	snapshot := strings.Replace(line, `\"op\":\"u\"`, `\"op\":\"r\"`, 1)
	if got, l := keys(snapshot); len(got) != 0 || l.Ignored != "snapshot" {
		t.Errorf("a snapshot row gives %q, ignored %q", got, l.Ignored)
	}
	if got, _ := keys(snapshot, "--snapshots"); len(got) == 0 {
		t.Error("--snapshots maps nothing")
	}
}

// The form of ring locate's JSON is stable, and the owners are those that every client computes.
func TestLocate(t *testing.T) {
	code, stdout, stderr := invalidator(t, "", "ring", "locate", "--json", "--ring", "testdata/ring.json", "user:42:profile", "user:42:card")
	if code != 0 {
		t.Fatal(stderr)
	}
	vectors, err := os.ReadFile("../../sink/testdata/ring-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var rings map[string]struct{ Owners map[string]string }
	if err := json.Unmarshal(vectors, &rings); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(stdout) {
		var got struct {
			Key    string
			Hash   *int64
			Shard  string
			Copies []struct{ Node, Key string }
		}
		dec := json.NewDecoder(strings.NewReader(l))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if want := rings["four"].Owners[got.Key]; got.Shard != want || got.Hash == nil {
			t.Errorf("%s is on shard %s, want %s: %s", got.Key, got.Shard, want, l)
		}
		if len(got.Copies) == 0 || got.Copies[0].Key != got.Key {
			t.Errorf("copies: %s", l)
		}
	}
	if !strings.HasPrefix(stdout, `{"key":"user:42:profile","hash":`) {
		t.Errorf("got %s", stdout)
	}
}

// The printed configuration has every default, loads again, and shows no secret.
func TestConfigHidesSecrets(t *testing.T) {
	t.Setenv("CMD_TEST_PASSWORD", "hunter2")
	dir := t.TempDir()
	path := file(t, dir, "c.yaml", `
kafka: {brokers: [k:1], sasl: {mechanism: plain, user: u, password: "${CMD_TEST_PASSWORD}"}}
cache: {ring: {etcd: {endpoints: [e:1], user: u, password: hunter2}}}
sources: [{name: shop, type: mysql, hosts: [m:1], user: u, password: {file: `+file(t, dir, "pw", "hunter2")+`}, include: [shop.*]}]
`)
	code, stdout, stderr := invalidator(t, "", "config", "-c", path)
	if code != 0 || strings.Contains(stdout+stderr, "hunter2") || strings.Count(stdout, "'***'") != 3 {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if !strings.Contains(stdout, "settle: 1s") || !strings.Contains(stdout, "queue: 8388608") {
		t.Errorf("defaults are missing:\n%s", stdout)
	}
	if code, _, stderr := invalidator(t, "", "config", "-c", file(t, dir, "again.yaml", stdout)); code != 0 {
		t.Errorf("what was printed does not load: %s", stderr)
	}
}

// A signal ends a worker that waits for its broker with exit code 0.
func TestRunEndsWithTheSignal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	file(t, dir, "mappings.d/shop.yaml", strings.Replace(wrongTest, "user:2", "user:1", 1))
	ring, err := os.ReadFile("testdata/ring.json")
	if err != nil {
		t.Fatal(err)
	}
	file(t, dir, "ring.json", string(ring))
	path := file(t, dir, "c.yaml", "kafka: {brokers: ['"+l.Addr().String()+"']}\ncache: {ring: {file: ring.json}}\nsources: [{name: shop, topics: {pattern: 'shop\\..*'}, first_start: latest}]\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	began := time.Now()
	if code := run(ctx, []string{"run", "-c", path}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}
