//go:build integration

package main

import (
	"fmt"
	"testing"

	"invalidator/test/integration/services"
)

// B5: a template on a generated column is an error of the check against the live publication, and no silence at run time; A11,
// A12 and B3: so is one on a float or a document, and an array is a text.
func TestB5A11A12B3CheckAgainstThePublication(t *testing.T) {
	for _, service := range []string{"POSTGRES", "POSTGRES17"} {
		t.Run(service, func(t *testing.T) {
			db := livePostgres(t, service,
				"CREATE TABLE u (id int PRIMARY KEY, first text, last text, full_name text GENERATED ALWAYS AS (first||last) STORED, f real, d double precision, j json, tags text[])",
				"ALTER TABLE u REPLICA IDENTITY FULL", "CREATE PUBLICATION theirs FOR TABLE u")
			code, stdout, stderr := invoke(t, map[string]string{
				"invalidator.yaml": fmt.Sprintf(`sources:
  - {name: shop, type: postgres, database: %s, hosts: ["%s"], user: postgres, password: x, publication: theirs, include: ["public.*"]}
`, db, services.Addr(service)),
				"mappings.d/a.yaml": `version: 1
team: a
pools: [name]
mappings:
  - name: names
    table: public.u
    keys:
      - name:{full_name}
      - name:{first}:{last}
      - name:f:{f}
      - name:d:{d}
      - name:j:{j}
      - name:tags:{tags}
`,
			}, "mappings", "check", "-c", "invalidator.yaml")
			if code != exitFailed || stderr != "" {
				t.Errorf("exit code %d, stderr %s", code, stderr)
			}
			same(t, "findings", firstLines(stdout), `mappings.d/a.yaml:8:15: error: table public.u: column full_name is never seen: it is generated, and generated columns are not published
mappings.d/a.yaml:10:17: error: table public.u: column f is a float, which no key can hold
mappings.d/a.yaml:11:17: error: table public.u: column d is a float, which no key can hold
mappings.d/a.yaml:12:17: error: table public.u: column j is a JSON document, which no key can hold
`)
		})
	}
}

// C3: the check says of a table with its default identity that the old value of another column can never be known, and of one with
// FULL nothing.
func TestC3CheckNamesOldValues(t *testing.T) {
	for identity, want := range map[string]string{
		"DEFAULT": "mappings.d/a.yaml:9:17: warning: table public.u: the old value of column email is not known, so that an update leaves its old key: its table's replica identity leaves it out\n",
		"FULL":    "", "USING INDEX u_email": "mappings.d/a.yaml:8:12: warning: table public.u: the old value of column id is not known, so that an update leaves its old key: its table's replica identity leaves it out\n",
	} {
		t.Run(identity, func(t *testing.T) {
			db := livePostgres(t, "POSTGRES", "CREATE TABLE u (id int PRIMARY KEY, email text NOT NULL)", "CREATE UNIQUE INDEX u_email ON u (email)",
				"ALTER TABLE u REPLICA IDENTITY "+identity)
			_, stdout, stderr := invoke(t, map[string]string{
				"invalidator.yaml": fmt.Sprintf("sources:\n  - {name: shop, type: postgres, database: %s, hosts: [%q], user: postgres, password: x, include: [\"public.*\"]}\n",
					db, services.Addr("POSTGRES")),
				"mappings.d/a.yaml": "version: 1\nteam: a\npools: [u]\nmappings:\n  - name: u\n    table: public.u\n    keys:\n      - u:{id}\n      - u:mail:{email}\n",
			}, "mappings", "check", "-c", "invalidator.yaml")
			if stderr != "" {
				t.Error(stderr)
			}
			same(t, "findings", firstLines(stdout), want)
		})
	}
}
