package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broken has errors in two files, a warning and a note.
var broken = map[string]string{
	"mappings.d/a.yaml": "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    coloumns: {id: bigint}\n" +
		"    keys:\n      - user:{email|lowr}\n      - key:\tuser:{id\n",
	"mappings.d/b.yaml": "version: 1\nteam: b\npools: [NO, cart]\n",
	"mappings.d/c.yaml": "version: 1\nteam: c\npools: [line]\nmappings:\n  - name: line\n    table: shop.lines\n    keys:\n" +
		"      - line:{a}{b}\n      - line:{c}:x\n      - line:{d}:x\n",
}

func TestCheckShowsEachPlace(t *testing.T) {
	code, stdout, stderr := invoke(t, broken, "mappings", "check")
	if code != exitFailed || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	same(t, "stdout", stdout, `mappings.d/a.yaml:7:5: error: field "coloumns" is unknown in a mapping
    7 |     coloumns: {id: bigint}
      |     ^
      = did you mean "columns"?
mappings.d/a.yaml:9:21: error: filter "lowr" is unknown
    9 |       - user:{email|lowr}
      |                     ^
      = did you mean "lower"?
mappings.d/a.yaml:10:19: error: a { without its }
   10 |       - key:	user:{id
      |             	     ^
      = write {{ for a brace
mappings.d/b.yaml:3:9: error: pool is NO, which YAML reads as a boolean
    3 | pools: [NO, cart]
      |         ^
      = write "NO" in quotes
mappings.d/c.yaml:8:17: warning: {b} follows {a} with nothing between: two rows may share a key
    8 |       - line:{a}{b}
      |                 ^
      = put a : between
mappings.d/c.yaml:10:9: note: line:{d}:x gives the keys of line:{c}:x in line 9: a row of one may share its key with a row of the other
   10 |       - line:{d}:x
      |         ^
      = right where they hold the same thing; else put a word between, as in user:by-email:{email}
errors: 4, warnings: 1
1 file, 3 templates, fingerprint `+strings.Fields(stdout[strings.LastIndex(stdout, "fingerprint "):])[1]+"\n")
}

// The caret stands under its place on a terminal: wide characters take two columns there, marks that join one none, and of a long
// line its surroundings are shown. What a terminal would obey is not.
func TestCheckPointsAtTheRightPlace(t *testing.T) {
	const f = "version: 1\nteam: a\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: "
	long := strings.Repeat("x", 300)
	_, stdout, _ := invoke(t, map[string]string{
		"mappings.d/a.yaml": f + "[\"user:日本語:e\u0301:{id|lowr}\"]\n",
		"mappings.d/b.yaml": f + "[\"user:" + long + "{id|lowr}" + long + "\"]\n",
		"mappings.d/c.yaml": "version: 1 # \x1b[31m red\n",
	}, "mappings", "check")
	same(t, "stdout", stdout[:strings.Index(stdout, "errors:")], "mappings.d/a.yaml:7:29: error: filter \"lowr\" is unknown\n"+
		"    7 |     keys: [\"user:日本語:e\u0301:{id|lowr}\"]\n"+
		"      | "+strings.Repeat(" ", 30)+"^\n"+
		"      = did you mean \"lower\"?\n"+
		"mappings.d/b.yaml:7:322: error: filter \"lowr\" is unknown\n"+
		"    7 | …"+long[:76]+"{id|lowr}"+long[:55]+"…\n"+
		"      | "+strings.Repeat(" ", 81)+"^\n"+
		"      = did you mean \"lower\"?\n"+
		"mappings.d/c.yaml:1:1: error: not YAML: control characters are not allowed\n"+
		"    1 | version: 1 # \uFFFD[31m red\n"+
		"      | ^\n"+
		"      = a text that holds : # , [ ] { } or begins with a sign needs quotes: \"user:{id}\"\n")
}

func TestCheckOfWhatIsNoFolder(t *testing.T) {
	for name, want := range map[string]string{
		"none":     "invalidator: there is no folder none (see invalidator --help)\n",
		"a/a.yaml": "invalidator: a/a.yaml is not a folder (name the folder that it is in: a file is checked beside the others) (see invalidator --help)\n",
	} {
		code, _, stderr := invoke(t, map[string]string{"a/a.yaml": ""}, "mappings", "check", name)
		if code != exitMisuse || stderr != want {
			t.Errorf("exit code %d, %q, want %q", code, stderr, want)
		}
	}
}

func TestCheckForGitHub(t *testing.T) {
	code, stdout, _ := invoke(t, broken, "mappings", "check", "--format", "github")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	first, _, _ := strings.Cut(stdout, "\n")
	same(t, "the first annotation", first, `::error file=mappings.d/a.yaml,line=7,col=5::field "coloumns" is unknown in a mapping (did you mean "columns"?)`)
	for _, want := range []string{"\n::warning file=mappings.d/c.yaml,line=8,col=17::", "\n::notice file=mappings.d/c.yaml,line=10,col=9::"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestAnnotationPathsStartAtTheRepository(t *testing.T) {
	dir := folder(t, map[string]string{"teams/mappings.d/x,y.yaml": "version: 2\nteam: a\npools: [user]\n"})
	t.Setenv("GITHUB_WORKSPACE", dir)
	_, stdout, _ := invoke(t, nil, "mappings", "check", dir+"/teams/mappings.d", "--format", "github")
	if want := "::error file=teams/mappings.d/x%2Cy.yaml,line=1,col=10::"; !strings.HasPrefix(stdout, want) {
		t.Errorf("got %s, want %s…", stdout, want)
	}
}

func TestCheckAsJSON(t *testing.T) {
	_, stdout, _ := invoke(t, broken, "mappings", "check", "--json")
	var lines []map[string]any
	for line := range strings.Lines(stdout) {
		var x map[string]any
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, x)
	}
	if len(lines) != 6 || lines[1]["file"] != "mappings.d/a.yaml" || lines[1]["line"] != 9.0 || lines[1]["col"] != 21.0 ||
		lines[1]["severity"] != "error" || lines[1]["what"] != `filter "lowr" is unknown` || lines[1]["hint"] != `did you mean "lower"?` {
		t.Errorf("got %s", stdout)
	}
}

func TestCheckOfARightFolder(t *testing.T) {
	code, stdout, stderr := invoke(t, map[string]string{"teams/a.yaml": "version: 1\nteam: a\nunderivable: [feed]\n"}, "mappings", "check", "teams")
	if code != exitOK || stderr != "" || !strings.HasPrefix(stdout, "1 file, 0 templates, fingerprint ") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

const tested = `version: 1
team: profiles
pools: [user]
mappings:
  - name: user
    table: shop.users
    keys:
      - user:{id}
      - user:by-email:{email|lower}
      - user:by-phone:{phone}
tests:
  - name: right
    table: shop.users
    after: {id: 1, email: null, phone: null}
    keys: [user:1]
  - name: wrong
    table: shop.users
    before: {id: 1, email: a@x.test}
    after: {email: b@x.test}
    keys: [user:1, user:2, "user:by-email:a@x.test"]
`

func TestTestShowsTheDifference(t *testing.T) {
	code, stdout, _ := invoke(t, map[string]string{"mappings.d/a.yaml": tested}, "mappings", "test", "--coverage")
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	same(t, "stdout", stdout, `mappings.d/a.yaml:16:5: error: test "wrong" failed
   16 |   - name: wrong
      |     ^
      user:1
    - user:2
      user:by-email:a@x.test
    + user:by-email:b@x.test
      skipped user:by-phone:{phone}: before image, column phone: the image does not hold the column
      skipped user:by-phone:{phone}: after image, column phone: the image does not hold the column
mappings.d/a.yaml:10:9: note: no test has a key of user:by-phone:{phone}
   10 |       - user:by-phone:{phone}
      |         ^
1 of 2 tests passed
2 of 3 templates are covered
`)
}

func TestTestAsJSON(t *testing.T) {
	_, stdout, _ := invoke(t, map[string]string{"mappings.d/a.yaml": tested}, "mappings", "test", "--json", "--coverage")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	same(t, "the first line", lines[0], `{"test":"right","file":"mappings.d/a.yaml","line":12,"col":5,"ok":true,"missing":[],"unexpected":[],`+
		`"skipped":["user:by-email:{email|lower}: after image, column email: the column is NULL","user:by-phone:{phone}: after image, column phone: the column is NULL"]}`)
	same(t, "the last line", lines[len(lines)-1], `{"template":"user:by-phone:{phone}","mapping":"user","file":"mappings.d/a.yaml","line":10,"col":9,"covered":false,"lacks":["no test has a key of user:by-phone:{phone}"]}`)
}

func TestSchemaIsPrinted(t *testing.T) {
	code, stdout, _ := invoke(t, nil, "mappings", "schema")
	if code != exitOK || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, "2020-12") {
		t.Errorf("exit code %d, %.100q", code, stdout)
	}
}

// What topics hold is told after what is wrong, as text or as lines of their own; on a pull request it is not told.
func TestCheckListsTheTopicsThatSomebodyElseFeeds(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "dbz.shop.users", "dbz.tx"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "dbz.shop.users", Key: []byte(`{"id":1}`),
		Value: []byte(`{"before":null,"after":{"id":1},"source":{"connector":"mysql","name":"dbz","db":"shop","table":"users"},"op":"c"}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"mappings.d/a.yaml": "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}\"]}\n",
		"invalidator.yaml":  fmt.Sprintf("kafka: {brokers: [\"%s\"]}\nsources:\n  - {name: dbz, topics: {pattern: 'dbz\\..*'}, first_start: latest}\n", cluster.ListenAddrs()[0]),
	}
	code, stdout, stderr := invoke(t, files, "mappings", "check", "-c", "invalidator.yaml")
	if code != exitOK || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	same(t, "stdout", stdout[:strings.Index(stdout, "1 file,")], `mappings.d/a.yaml:5:51: warning: table shop.users: nobody says of which type column id is: the records of source dbz have no schema, `+
		`and there bytes, bits, a decimal, a date or a time stand otherwise than SELECT shows them
    5 |   - {name: user, table: shop.users, keys: ["user:{id}"]}
      |                                                   ^
      = give mapping user the line columns: {id: …}, with the database's own word: bigint unsigned, decimal(10,2), binary(16), datetime(6), varchar(100)
topics of source dbz:
  dbz.shop.users  shop.users (no types, key id)
  dbz.tx          no change of a row among its newest records
errors: 0, warnings: 1
`)
	_, stdout, _ = invoke(t, files, "mappings", "check", "-c", "invalidator.yaml", "--json")
	if want := `{"source":"dbz","topic":"dbz.shop.users","tables":[{"table":"shop.users","types":false,"key":["id"]}]}` + "\n" +
		`{"source":"dbz","topic":"dbz.tx","tables":[]}` + "\n"; !strings.HasSuffix(stdout, want) {
		t.Errorf("got %s", stdout)
	}
	_, stdout, _ = invoke(t, files, "mappings", "check", "-c", "invalidator.yaml", "--format", "github")
	if strings.Contains(stdout, "dbz.tx") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("got %s", stdout)
	}
}
