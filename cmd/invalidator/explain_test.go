package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const explainMappings = `version: 1
team: profiles
pools: [user]
mappings:
  - name: user
    table: shop.users
    keys:
      - user:{id}
      - user:by-email:{email|lower}
      - key: user:name:{name}
        when: changed(name)
      - key: user:rank:{id}
        when: changed(score) && op == 'update'
      - key: user:new:{id}
        shadow: true
`

func TestExplainOfARowTypedByHand(t *testing.T) {
	files := map[string]string{"mappings.d/a.yaml": explainMappings}
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"an update", `shop.users update
  delete user:1                           profiles, mapping user: user:{id}
  delete user:by-email:a@x.test           profiles, mapping user: user:by-email:{email|lower}
  delete user:rank:1                      profiles, mapping user: user:rank:{id}
  delete user:by-email:b@x.test           profiles, mapping user: user:by-email:{email|lower}
  in shadow: delete user:new:1                       profiles, mapping user: user:new:{id}
  left out user:name:{name} (user): changed(name) is false
  counts as true for user:rank:{id} (user): changed(score) && op == 'update', for it cannot be decided: column score of the before image: the image does not hold the column
`, []string{"--row", "shop.users", "--before", `{"id": 1, "email": "A@x.test", "name": "Ann"}`, "--after", `{"email": "b@x.test"}`}},
		{"a delete", `shop.users delete
  delete user:1                           profiles, mapping user: user:{id}
  in shadow: delete user:new:1                       profiles, mapping user: user:new:{id}
  skipped user:by-email:{email|lower} (user): null: column email of the before image: the column is NULL
  skipped user:name:{name} (user): absent: column name of the before image: the image does not hold the column
  left out user:rank:{id} (user): changed(score) && op == 'update' is false
`, []string{"--row", "shop.users", "--before", `{id: 1, email: null}`}},
		{"of a table that nobody maps", "shop.orders: ignored, unmapped\n", []string{"--row", "shop.orders", "--after", "{id: 1}"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := invoke(t, files, append([]string{"explain"}, c.args...)...)
			if code != exitOK || stderr != "" {
				t.Errorf("exit code %d, stderr %s", code, stderr)
			}
			same(t, "stdout", stdout, c.want)
		})
	}
}

func TestExplainAsJSON(t *testing.T) {
	files := map[string]string{"mappings.d/a.yaml": explainMappings}
	_, stdout, _ := invoke(t, files, "explain", "--json", "--row", "shop.users", "--before", "{id: 1, name: a}", "--after", "{name: a, email: null}")
	same(t, "stdout", stdout, `{"topic":"","table":"shop.users","op":"u",`+
		`"keys":[{"key":"user:1","pool":"user","team":"profiles","mapping":"user","template":"user:{id}","action":"delete","copies":[]},`+
		`{"key":"user:rank:1","pool":"user","team":"profiles","mapping":"user","template":"user:rank:{id}","action":"delete","copies":[]}],`+
		`"skipped":[{"mapping":"user","template":"user:by-email:{email|lower}","reason":"null: column email of the before image: the column is NULL"},`+
		`{"mapping":"user","template":"user:by-email:{email|lower}","reason":"null: column email of the after image: the column is NULL"}],`+
		`"shadow":[{"key":"user:new:1","pool":"user","team":"profiles","mapping":"user","template":"user:new:{id}","action":"delete","copies":[]}],`+
		`"conditions":[{"mapping":"user","template":"user:name:{name}","when":"changed(name)","result":"false"},`+
		`{"mapping":"user","template":"user:rank:{id}","when":"changed(score) && op == 'update'","result":"undecided","reason":"column score of the before image: the image does not hold the column"}]}`+"\n")
}

// A key that JSON cannot show has its bytes beside it, and each of its copies too; people see it quoted.
func TestExplainABinaryKey(t *testing.T) {
	files := map[string]string{
		"mappings.d/a.yaml": "version: 1\nteam: a\npools: [u]\nreaders: meta\nbinary_keys: base64\nmappings: [{name: u, table: shop.users, keys: [{key: \"u:{id}\", hot: 1}]}]\n",
		"ring.json":         `{"epoch":1,"kind":"points160","shards":[{"id":"s0","weight":1,"primary":{"addr":"n:1","zone":"a"}}]}`,
	}
	row := []string{"explain", "--ring", "ring.json", "--row", "shop.users", "--after", "{id: {hex: 00ff20}}"}
	_, stdout, stderr := invoke(t, files, row...)
	same(t, "stdout", stdout+stderr, `shop.users insert
  delete "u:\x00\xff "                    a, mapping u: u:{id}
      n:1                   "u:\x00\xff "
      n:1                   "u:\x00\xff #1"
`)
	_, stdout, _ = invoke(t, files, append(row, "--json")...)
	same(t, "stdout", stdout, `{"topic":"","table":"shop.users","op":"c","keys":[{"key":"u:\u0000\ufffd ","key_base64":"dToA/yA=","pool":"u","team":"a","mapping":"u","template":"u:{id}","action":"delete",`+
		`"copies":[{"node":"n:1","key":"u:\u0000\ufffd ","key_base64":"dToA/yA="},{"node":"n:1","key":"u:\u0000\ufffd #1","key_base64":"dToA/yAjMQ=="}]}],"skipped":[]}`+"\n")
}

func TestExplainRefusesWhatContradicts(t *testing.T) {
	files := map[string]string{"mappings.d/a.yaml": explainMappings, "hot.json": "{}"}
	for want, args := range map[string][]string{
		"explain: --hot needs --ring":                                                   {"--hot", "hot.json"},
		"explain: --topic needs --config, which names the brokers":                      {"--topic", "t"},
		"explain: a file, --topic and --row exclude each other":                         {"--row", "a.b", "--after", "{a: 1}", "file"},
		"explain: --before and --after need --row, the table that they are of":          {"--before", "{a: 1}"},
		"reading the row: a row has neither before nor after":                           {"--row", "a.b"},
		`reading the row: "users" is no table's name`:                                   {"--row", "users", "--after", "{a: 1}"},
		"reading the row: after:1:5: column a is true, which no database shows":         {"--row", "a.b", "--after", "{a: true}"},
		"reading the row: before:1:1: before must be columns with values, not the text": {"--row", "a.b", "--before", "a"},
	} {
		code, _, stderr := invoke(t, files, append([]string{"explain"}, args...)...)
		wantCode := exitMisuse
		if strings.HasPrefix(want, "reading the row") {
			wantCode = exitFailed
		}
		if code != wantCode || !strings.HasPrefix(stderr, "invalidator: "+want) {
			t.Errorf("%v: exit code %d, %s, want %s", args, code, stderr, want)
		}
	}
}

func TestExplainOfATopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "shop.shop.users", "flat"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for _, r := range []*kgo.Record{
		{Topic: "shop.shop.users", Timestamp: at, Value: []byte(`{"before":null,"after":{"id":0,"email":"old"},"source":{"connector":"mysql","name":"shop","db":"shop","table":"users"},"op":"c"}`)},
		{Topic: "shop.shop.users", Timestamp: time.Now(), Value: []byte(`{"before":null,"after":{"id":7,"email":"A@x.test"},"source":{"connector":"mysql","name":"shop","db":"shop","table":"users"},"op":"c"}`)},
		{Topic: "shop.shop.users", Timestamp: time.Now(), Value: []byte(`{broken`)},
		{Topic: "flat", Timestamp: time.Now(), Value: []byte(`{"id":8,"email":null}`)},
	} {
		if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		"teams/a.yaml": strings.Split(explainMappings, "      - key: user:name")[0],
		"invalidator.yaml": fmt.Sprintf(`kafka: {brokers: ["%s"]}
mappings: {dir: teams}
sources:
  - {name: shop, type: mysql, hosts: ["127.0.0.1:1"], user: x, include: ["shop.*"]}
  - {name: flat, topics: {pattern: flat, format: unwrapped, table: shop.users, connector: mysql}, first_start: latest}
`, cluster.ListenAddrs()[0]),
	}
	code, stdout, stderr := invoke(t, files, "explain", "-c", "invalidator.yaml", "--topic", "shop.shop.users", "--since", "1h")
	if code != exitFailed || stderr != "" { // for the broken record
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
	lines := strings.Split(stdout, "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "0/1 at 20") || !strings.HasSuffix(lines[0], "Z: shop.users insert") ||
		!strings.HasPrefix(lines[1], "  delete user:7 ") || !strings.HasPrefix(lines[2], "  delete user:by-email:a@x.test ") ||
		!strings.HasPrefix(lines[3], "0/2 at 20") || !strings.Contains(lines[3], "Z: error: ") {
		t.Errorf("got %s", stdout)
	}
	// A topic is read as its source says.
	if code, stdout, stderr = invoke(t, files, "explain", "-c", "invalidator.yaml", "--topic", "flat", "--json"); code != exitOK ||
		!strings.Contains(stdout, `"keys":[{"key":"user:8",`) || !strings.Contains(stdout, `"place":{"partition":0,"offset":0,"time":"20`) {
		t.Errorf("exit code %d, %s, %s", code, stdout, stderr)
	}
}

// A record that cannot be read is told with its line, and the others are explained.
func TestExplainNamesTheLineOfABrokenRecord(t *testing.T) {
	dir := folder(t, map[string]string{"mappings.d/a.yaml": explainMappings,
		"records": "\n{\"before\":null,\"after\":{\"id\":1},\"source\":{\"connector\":\"mysql\",\"name\":\"s\",\"db\":\"shop\",\"table\":\"x\"},\"op\":\"c\"}\nbroken\n"})
	code, stdout, _ := invokeHere(t, dir, "explain", "records")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	same(t, "stdout", stdout, "a record: ignored, unmapped\nline 3: error: decoding a record: not a JSON object\n")
	_, stdout, _ = invokeHere(t, dir, "explain", "records", "--json")
	if want := `"error":"decoding a record: not a JSON object","line":3}` + "\n"; !strings.HasSuffix(stdout, want) {
		t.Errorf("got %s, want %s", stdout, want)
	}
}
