//go:build integration

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/jackc/pgx/v5"

	"invalidator/test/integration/services"
)

// liveMySQL makes a database and runs statements in it.
func liveMySQL(t *testing.T, service string, statements ...string) (db string) {
	t.Helper()
	c, err := client.Connect(services.Addr(service), "root", "", "")
	if err != nil {
		t.Fatal(err)
	}
	db = "check_" + strings.ToLower(rand.Text()[:10])
	exec := func(sql string) {
		t.Helper()
		r, err := c.Execute(sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		r.Close()
	}
	exec("CREATE DATABASE " + db)
	t.Cleanup(func() { exec("DROP DATABASE " + db); c.Close() })
	exec("USE " + db)
	for _, s := range statements {
		exec(s)
	}
	return db
}

func livePostgres(t *testing.T, service string, statements ...string) (db string) {
	t.Helper()
	ctx := context.Background()
	connect := func(database string) *pgx.Conn {
		t.Helper()
		c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", services.Addr(service), database))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	exec := func(c *pgx.Conn, sql string) {
		t.Helper()
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	admin := connect("postgres")
	db = "check_" + strings.ToLower(rand.Text()[:10])
	exec(admin, "CREATE DATABASE "+db)
	t.Cleanup(func() { exec(admin, "DROP DATABASE "+db+" WITH (FORCE)"); _ = admin.Close(ctx) })
	c := connect(db)
	defer func() { _ = c.Close(ctx) }()
	for _, s := range statements {
		exec(c, s)
	}
	return db
}

// firstLines are the lines that say what is wrong, without the excerpts of the file.
func firstLines(stdout string) string {
	var b strings.Builder
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "mappings.d/") || strings.HasPrefix(line, "invalidator.yaml") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestJ2_CheckFindsWhatCannotWork: everything at once, before a single change is read.
func TestJ2_CheckFindsWhatCannotWork(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(service, func(t *testing.T) {
			db := liveMySQL(t, service,
				"CREATE TABLE users (id BIGINT UNSIGNED PRIMARY KEY, email VARCHAR(100), score DOUBLE, doc JSON, code BINARY(8), bad VARCHAR(9) CHARACTER SET dec8)",
				"CREATE TABLE notes (id INT PRIMARY KEY, user_id BIGINT UNSIGNED, CONSTRAINT notes_of FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE)",
				"CREATE TABLE other (id INT PRIMARY KEY)",
				"CREATE VIEW seen AS SELECT id FROM users")
			code, stdout, stderr := invoke(t, map[string]string{
				"invalidator.yaml": fmt.Sprintf(`sources:
  - {name: shop, type: mysql, hosts: ["%s"], user: cdc, password: cdc-password, include: ["%s.[^o]*"]}
`, services.Addr(service), db),
				"mappings.d/a.yaml": strings.ReplaceAll(`version: 1
team: a
pools: [user, note]
mappings:
  - name: user
    table: DB.users
    columns: {id: bigint, email: varchar(100)}
    keys:
      - user:{id}
      - user:by:{emial|lower}
      - user:score:{score}
      - user:doc:{doc}
      - user:code:{code|uuid}
      - user:bad:{bad}
      - user:mail:{email|mod(3)}
  - name: note
    tables: [DB.notes, DB.gone, DB.other, DB.seen, "other_*.x"]
    keys: ["note:{id}"]
  - name: elsewhere
    table: DB.users
    source: shoop
    keys: ["user:else:{id}"]
`, "DB", db),
			}, "mappings", "check", "-c", "invalidator.yaml")
			if code != exitFailed || stderr != "" {
				t.Errorf("exit code %d, stderr %s", code, stderr)
			}
			json := "a JSON document"
			if service == "MARIADB" { // to the server it is a longtext
				json = ""
			}
			want := strings.ReplaceAll(`mappings.d/a.yaml:7:15: warning: table DB.users: column id is declared bigint and is bigint unsigned
mappings.d/a.yaml:10:18: error: table DB.users: it has no column emial
mappings.d/a.yaml:11:21: error: table DB.users: column score is a float, which no key can hold
JSON
mappings.d/a.yaml:13:25: error: table DB.users: filter "uuid" takes 16 bytes or the text of a UUID, and column code is binary(8)
mappings.d/a.yaml:14:19: error: table DB.users: column bad is never seen: its charset dec8 cannot be read
mappings.d/a.yaml:17:14: warning: table DB.notes: rows that change with their parent in users (foreign key notes_of, ON DELETE CASCADE) are in no log
mappings.d/a.yaml:17:38: error: no table DB.gone exists in source shop
mappings.d/a.yaml:17:61: error: no source feeds DB.other: source shop has it, and its include leaves it out
mappings.d/a.yaml:17:85: error: table DB.seen: it is a view: its changes are logged under the names of the tables that it reads
mappings.d/a.yaml:17:108: error: no table matches other_*.x in source shop
mappings.d/a.yaml:21:13: error: no source of the configuration is called "shoop"
`, "DB", db)
			if json == "" {
				want = strings.ReplaceAll(want, "JSON\n", "")
			} else {
				want = strings.ReplaceAll(want, "JSON\n", "mappings.d/a.yaml:12:19: error: table "+db+".users: column doc is "+json+", which no key can hold\n")
			}
			same(t, "findings", firstLines(stdout), want)
		})
	}
}

func TestJ2_CheckFindsWhatPostgresDoesNotSend(t *testing.T) {
	db := livePostgres(t, "POSTGRES",
		"CREATE DOMAIN price AS double precision",
		"CREATE TABLE users (id int PRIMARY KEY, first text, last text, full_name text GENERATED ALWAYS AS (first || last) STORED, p price, j jsonb, tags text[], at timestamptz)",
		"CREATE TABLE whole (id int PRIMARY KEY, first text)", "ALTER TABLE whole REPLICA IDENTITY FULL",
		"CREATE TABLE unpublished (id int PRIMARY KEY)",
		"CREATE TABLE keyless (id int)",
		"CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (10)",
		"CREATE PUBLICATION theirs FOR TABLE users (id, first, p, j, tags, at), whole, parts")
	code, stdout, stderr := invoke(t, map[string]string{
		"invalidator.yaml": fmt.Sprintf(`sources:
  - {name: shop, type: postgres, database: %s, hosts: ["%s"], user: postgres, password: x, publication: theirs, include: ["public.*"]}
`, db, services.Addr("POSTGRES")),
		"mappings.d/a.yaml": `version: 1
team: a
pools: [user]
mappings:
  - name: user
    table: public.users
    keys:
      - user:{id}
      - user:first:{first|lower}
      - user:last:{last}
      - user:name:{full_name}
      - user:price:{p}
      - user:json:{j|json('a.b')}
      - user:tags:{tags|unix}
  - name: whole
    tables: [public.whole, public.unpublished, public.keyless, public.parts]
    keys: ["user:whole:{id}:{first}"]
`,
	}, "mappings", "check", "-c", "invalidator.yaml")
	if code != exitFailed || stderr != "" {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
	same(t, "findings", firstLines(stdout), `mappings.d/a.yaml:9:21: warning: table public.users: the old value of column first is not known, so that an update leaves its old key: its table's replica identity leaves it out
mappings.d/a.yaml:10:20: error: table public.users: column last is never seen: publication theirs does not send it
mappings.d/a.yaml:11:20: error: table public.users: column full_name is never seen: it is generated, and generated columns are not published
mappings.d/a.yaml:12:21: warning: table public.users: the old value of column p is not known, so that an update leaves its old key: its table's replica identity leaves it out
mappings.d/a.yaml:12:21: error: table public.users: column p is a float, which no key can hold
mappings.d/a.yaml:13:20: warning: table public.users: the old value of column j is not known, so that an update leaves its old key: its table's replica identity leaves it out
mappings.d/a.yaml:14:20: warning: table public.users: the old value of column tags is not known, so that an update leaves its old key: its table's replica identity leaves it out
mappings.d/a.yaml:14:25: error: table public.users: filter "unix" takes a date or a timestamp, and column tags is text[]
mappings.d/a.yaml:16:28: error: table public.unpublished: it is not in publication theirs, and we may not add it
mappings.d/a.yaml:16:48: error: table public.keyless: it has no primary key that is checked at once, and no replica identity: once published, its updates and deletes would fail (SQLSTATE 55000)
mappings.d/a.yaml:16:64: error: table public.parts: its changes carry the names of its partitions: public.parts_1
`)
}

func TestCheckTellsOfASourceThatDoesNotAnswer(t *testing.T) {
	code, stdout, _ := invoke(t, map[string]string{
		"invalidator.yaml":  "sources:\n  - {name: shop, type: mysql, hosts: [\"127.0.0.1:1\"], user: cdc, password: x, include: [\"shop.*\"]}\n",
		"mappings.d/a.yaml": "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}\"]}\n",
	}, "mappings", "check", "-c", "invalidator.yaml")
	if want := "invalidator.yaml: error: source shop: connecting to 127.0.0.1:1 as cdc: "; code != exitFailed || !strings.HasPrefix(stdout, want) {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

// What the topics of a real broker hold is told, and what is wrong with the mappings there.
func TestCheckLooksAtTheTopicsOfARealBroker(t *testing.T) {
	topic, cl := liveTopic(t)
	liveUser(t, cl, topic, 0, 1, 0)
	liveUser(t, cl, topic, 1, 2, 0)
	code, stdout, stderr := invoke(t, liveFiles(topic, ""), "mappings", "check", "-c", "invalidator.yaml")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "topics of source s:\n  "+topic+"  shop.users (no types, key id)\n") ||
		!strings.Contains(firstLines(stdout), "table shop.users: nobody says of which type column id is") {
		t.Errorf("exit code %d, %s, %s", code, stdout, stderr)
	}
}
