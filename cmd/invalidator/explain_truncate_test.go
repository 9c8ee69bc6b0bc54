package main

import "testing"

// A truncate shows the pools that it flushes, those that it leaves, and the keys that need no row.
func TestExplainATruncate(t *testing.T) {
	files := map[string]string{
		"mappings.d/a.yaml": `version: 1
team: profiles
pools: [user, config, page]
mappings:
  - {name: user, table: shop.users, keys: ["user:{id}", "config:all"]}
  - {name: page, table: shop.pages, on_truncate: ignore, keys: ["page:{id}"]}
`,
		"records": `{"before":null,"after":null,"source":{"connector":"mysql","name":"shop","db":"shop","table":"users"},"op":"t"}
{"source":{"connector":"mysql","name":"shop","db":"shop","table":"users,pages,others"},"databaseName":"shop","ddl":"DROP TABLE users, pages, others","tableChanges":[]}
{"source":{"connector":"mysql","name":"shop","db":"shop","table":null},"databaseName":"shop","ddl":"DROP DATABASE shop","tableChanges":[]}
{"source":{"connector":"mysql","name":"shop","db":"shop","table":"pages"},"databaseName":"shop","ddl":"TRUNCATE pages","tableChanges":[]}
{"source":{"connector":"mysql","name":"shop","db":"shop","table":"others"},"databaseName":"shop","ddl":"TRUNCATE others","tableChanges":[]}
`,
	}
	code, stdout, stderr := invoke(t, files, "explain", "records")
	if code != exitOK || stderr != "" {
		t.Errorf("exit code %d, stderr %s", code, stderr)
	}
	const config, user, page = "  delete config:all                       profiles, mapping user: config:all\n",
		"  flush pool user: no row says which of its keys are stale\n", "  pool page stays as it is: on_truncate is ignore\n"
	same(t, "stdout", stdout, "shop.users truncate\n"+config+user+
		"shop.users, shop.pages truncate\n"+config+user+page+
		"shop.* truncate\n"+config+user+page+
		"shop.pages truncate\n"+page+
		"a record: ignored, ddl\n")
	_, stdout, _ = invoke(t, files, "explain", "--json", "records")
	const key = `{"key":"config:all","pool":"config","team":"profiles","mapping":"user","template":"config:all","action":"delete","copies":[]}`
	same(t, "stdout", stdout, `{"topic":"","table":"shop.users","op":"t","keys":[`+key+`],"skipped":[],"flush":["user"]}
{"topic":"","table":"shop.users","op":"t","keys":[`+key+`],"skipped":[],"also":["shop.pages"],"flush":["user"],"unflushed":["page"]}
{"topic":"","table":"shop.*","op":"t","keys":[`+key+`],"skipped":[],"flush":["user"],"unflushed":["page"]}
{"topic":"","table":"shop.pages","op":"t","keys":[],"skipped":[],"unflushed":["page"]}
{"topic":"","table":"","op":"","keys":[],"skipped":[],"ignored":"ddl"}
`)
}
