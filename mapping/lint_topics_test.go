package mapping

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

const (
	noSchema = "the records of source dbz have no schema, and there bytes, bits, a decimal, a date or a time stand otherwise than SELECT shows them"
	mayLack  = "where the records of source dbz have no schema, bytes, bits, a decimal, a date or a time stand otherwise than SELECT shows them"
	ownWord  = "with the database's own word: bigint unsigned, decimal(10,2), binary(16), datetime(6), varchar(100)"
)

func topicsOf(name string, t LiveTopics) []LiveSource {
	return []LiveSource{{Name: name, Unknown: true, Topics: &t}}
}

func shopTable(table string, typed bool, key ...string) LiveTable {
	return LiveTable{TableID: cdc.TableID{Schema: "shop", Table: table}, Typed: typed, Key: key}
}

// A type that neither a record nor a mapping says is named, once a column.
func TestLintNamesColumnsWhoseTypeNobodySays(t *testing.T) {
	const one = "mappings:\n  - name: user\n    table: shop.users\n    keys:\n      - user:{id}\n      - user:{id}:at:{at}:{locale}\n"
	const declared = "mappings:\n  - name: user\n    table: shop.users\n    columns: {id: bigint unsigned, at: datetime(6), locale: char(2)}\n    keys: [\"user:{id}:at:{at}:{locale}\"]\n"
	const elsewhere = "mappings:\n  - {name: user, table: shop.users, columns: {id: bigint}, keys: [\"user:{id}:{at}\"]}\n" +
		"  - {name: other, table: 'shop.*', columns: {at: datetime(6)}, keys: [\"user:x:{at}\"]}\n"
	seen := func(typed bool) []LiveTable { return []LiveTable{shopTable("users", typed, "id")} }
	for _, c := range []struct {
		name, file string
		sources    []LiveSource
		want       []string
	}{
		{"none", one, topicsOf("dbz", LiveTopics{Format: "debezium", Asked: true, Tables: seen(false)}), []string{
			"f.yaml:8:15: warning: table shop.users: nobody says of which type column id is: " + noSchema + " (give mapping user the line columns: {id: …}, " + ownWord + ")",
			"f.yaml:9:23: warning: table shop.users: nobody says of which type column at is: " + noSchema + " (give mapping user the line columns: {at: …}, " + ownWord + ")",
			"f.yaml:9:28: warning: table shop.users: nobody says of which type column locale is: " + noSchema + " (give mapping user the line columns: {locale: …}, " + ownWord + ")",
		}},
		{"the records say it", one, topicsOf("dbz", LiveTopics{Format: "debezium", Asked: true, Tables: seen(true)}), nil},
		{"Avro", one, topicsOf("dbz", LiveTopics{Format: "avro", Typed: true}), nil},
		{"the mapping says it", declared, topicsOf("dbz", LiveTopics{Format: "debezium", Asked: true, Tables: seen(false)}), nil},
		{"another mapping says it", elsewhere, topicsOf("dbz", LiveTopics{Format: "debezium", Asked: true, Tables: seen(false)}), nil},
		{"one is left", "mappings:\n  - {name: user, table: shop.users, columns: {id: bigint}, keys: [\"user:{id}:{at}\"]}\n",
			topicsOf("dbz", LiveTopics{Format: "debezium"}), []string{
				"f.yaml:5:79: note: nobody says of which type column at is: " + mayLack + " (add at: … to columns of mapping user, " + ownWord + ")",
			}},
		{"Maxwell", "mappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}\"]}\n", topicsOf("mx", LiveTopics{Format: "maxwell"}), []string{
			"f.yaml:5:51: warning: nobody says of which type column id is: Maxwell's records (source mx) name no types, and there bytes, a set or a document stand otherwise than SELECT shows them; " +
				"a number with a point is refused (give mapping user the line columns: {id: …}, " + ownWord + ")",
		}},
		{"a pattern", "mappings:\n  - {name: user, table: 'shop.u*', keys: [\"user:{id}\"]}\n",
			topicsOf("dbz", LiveTopics{Format: "debezium", Asked: true, Tables: []LiveTable{shopTable("u1", false), shopTable("u2", false), shopTable("u3", true), shopTable("x", false)}}), []string{
				"f.yaml:5:50: warning: table shop.u1 and 1 more: nobody says of which type column id is: " + noSchema + " (give mapping user the line columns: {id: …}, " + ownWord + ")",
			}},
		{"whole keys", "mappings:\n  - {name: outbox, table: shop.outbox, keys: [{raw: \"{key}\"}]}\n",
			topicsOf("dbz", LiveTopics{Format: "debezium", Asked: true, Tables: []LiveTable{shopTable("outbox", false)}}), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, problems := NewSet([]*File{parse(t, head+c.file)})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(c.want, texts(set.LintTables(c.sources))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// I3: what a source of rows alone cannot say of a column that changes.
func TestI3_LintNamesColumnsOutsideTheKeyOfUnwrappedRows(t *testing.T) {
	const file = "mappings:\n  - name: user\n    table: shop.users\n    columns: {id: bigint, email: text, name: text}\n    keys:\n      - user:{id}\n      - user:{id}:{email}\n" +
		"      - {key: \"user:x:{id}\", when: changed(name) || before.id == 1 || after.email == null}\n"
	const hint = "key by columns that never change, or let the connector write its envelope (no ExtractNewRecordState)"
	const stays = "an update has no old row, so that the key of its old value stays"
	const counts = "the old value of column name is not known, and a condition that asks for it counts as true (let the connector write its envelope)"
	for _, c := range []struct {
		name   string
		topics LiveTopics
		want   []string
	}{
		{"the key is known", LiveTopics{Asked: true, Tables: []LiveTable{shopTable("users", true, "id")}}, []string{
			"f.yaml:10:20: warning: table shop.users: source flat is unwrapped, and column email is not of the record's key (id): " + stays + " (" + hint + ")",
			"f.yaml:11:36: note: table shop.users: source flat is unwrapped: " + counts,
		}},
		{"a key of both", LiveTopics{Asked: true, Tables: []LiveTable{shopTable("users", true, "id", "email", "name")}}, nil},
		{"no key", LiveTopics{Asked: true, Tables: []LiveTable{shopTable("users", true)}}, []string{
			"f.yaml:9:15: warning: table shop.users: source flat is unwrapped, and its records have no key: of column id " + stays + " (let the connector write a key (message.key.columns), and " + hint + ")",
			"f.yaml:10:15: warning: table shop.users: source flat is unwrapped, and its records have no key: of column id " + stays + " (let the connector write a key (message.key.columns), and " + hint + ")",
			"f.yaml:10:20: warning: table shop.users: source flat is unwrapped, and its records have no key: of column email " + stays + " (let the connector write a key (message.key.columns), and " + hint + ")",
			"f.yaml:11:24: warning: table shop.users: source flat is unwrapped, and its records have no key: of column id " + stays + " (let the connector write a key (message.key.columns), and " + hint + ")",
			"f.yaml:11:36: note: table shop.users: source flat is unwrapped: " + counts,
			"f.yaml:11:36: note: table shop.users: source flat is unwrapped: " + strings.Replace(counts, "name", "id", 1),
		}},
		{"nothing is known", LiveTopics{}, []string{
			"f.yaml:9:15: warning: source flat is unwrapped: unless column id is of the record's key, " + stays + " (" + hint + ")",
			"f.yaml:10:15: warning: source flat is unwrapped: unless column id is of the record's key, " + stays + " (" + hint + ")",
			"f.yaml:10:20: warning: source flat is unwrapped: unless column email is of the record's key, " + stays + " (" + hint + ")",
			"f.yaml:11:24: warning: source flat is unwrapped: unless column id is of the record's key, " + stays + " (" + hint + ")",
			"f.yaml:11:36: note: source flat is unwrapped: " + counts,
			"f.yaml:11:36: note: source flat is unwrapped: " + strings.Replace(counts, "name", "id", 1),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, problems := NewSet([]*File{parse(t, head+file)})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			c.topics.Format, c.topics.Unwrapped = "unwrapped", true
			got := texts(set.LintTables(topicsOf("flat", c.topics)))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLintTellsOfTablesThatNoTopicGives(t *testing.T) {
	set, _ := NewSet([]*File{parse(t, head+"mappings:\n  - {name: user, table: shop.users, columns: {id: int}, keys: [\"user:{id}\"]}\n")})
	asked := func(name string, tables ...LiveTable) LiveSource {
		return LiveSource{Name: name, Unknown: true, Topics: &LiveTopics{Format: "debezium", Asked: true, Count: 3, Tables: tables}}
	}
	away := LiveSource{Name: "away", Unknown: true, Topics: &LiveTopics{Format: "debezium"}}
	for _, c := range []struct {
		name    string
		sources []LiveSource
		want    []string
	}{
		{"none of two", []LiveSource{asked("dbz"), asked("more", shopTable("Users", true))}, []string{
			"f.yaml:5:25: warning: no change of shop.users stands among the newest records of the topics of sources dbz, more (6 of them) (names are compared by case; right where nothing of it was written lately)"}},
		{"one of two", []LiveSource{asked("dbz"), asked("more", shopTable("users", true))}, nil},
		{"one cannot be asked", []LiveSource{asked("dbz"), away}, nil},
		{"a database cannot be asked", []LiveSource{asked("dbz"), {Name: "shop", Unknown: true}}, nil},
		{"a database has none", []LiveSource{asked("dbz"), {Name: "shop"}}, []string{
			"f.yaml:5:25: warning: no change of shop.users stands among the newest records of the topics of source dbz (3 of them) (names are compared by case; right where nothing of it was written lately)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, texts(set.LintTables(c.sources))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
