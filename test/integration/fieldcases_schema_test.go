//go:build integration

package integration

import "invalidator/test/integration/harness"

// schemaCases: what the mappings name changes under them. The template that it meets is skipped by name; the row's others go on.
func schemaCases() []fieldCase {
	fulls := func(kinds []harness.Kind, setup ...string) []string {
		if kinds[0] == harness.Postgres { // whose log holds old rows only so
			setup = append(setup, `ALTER TABLE $t REPLICA IDENTITY FULL`)
		}
		return append(setup, `INSERT INTO $t VALUES (1, 'a', 5)`)
	}
	const table = `CREATE TABLE $t (id INT PRIMARY KEY, email VARCHAR(20), n INT)`
	keys := []string{"{id}", "mail:{email}", "n:{n}"}
	var all []fieldCase
	for _, kinds := range [][]harness.Kind{mysqls, postgres} {
		renamed := `ALTER TABLE $t RENAME COLUMN email TO mail`
		if kinds[0] != harness.Postgres {
			renamed = `ALTER TABLE $t CHANGE email mail VARCHAR(20)` // MySQL before 8.0 and MariaDB before 10.5 know no other way
		}
		retyped := map[bool]string{true: `ALTER TABLE $t ALTER n TYPE double precision`, false: `ALTER TABLE $t MODIFY n DOUBLE`}[kinds[0] == harness.Postgres]
		all = append(all, fieldCase{
			name: "D4 a mapped column is dropped", kinds: kinds, setup: fulls(kinds, table), keys: keys,
			steps: []step{{[]string{`UPDATE $t SET n = 6`}, []string{"1", "mail:a", "n:5", "n:6"}},
				{[]string{`ALTER TABLE $t DROP email`, `UPDATE $t SET n = 7`}, []string{"1", "n:6", "n:7"}}},
			says: []string{"$t", "mail:{email}", "column=email", "reason=absent"},
		}, fieldCase{
			name: "D4 a mapped column is renamed", kinds: kinds, setup: fulls(kinds, table), keys: keys,
			steps: []step{{[]string{renamed, `UPDATE $t SET n = 7`}, []string{"1", "n:5", "n:7"}}},
			says:  []string{"$t", "mail:{email}", "column=email", "reason=absent"},
		}, fieldCase{
			name: "D4 a mapped column becomes a float", kinds: kinds, setup: fulls(kinds, table), keys: keys,
			steps: []step{{[]string{retyped, `UPDATE $t SET n = 7`}, []string{"1", "mail:a"}}},
			stays: []string{"n:7"},
			says:  []string{"$t", "n:{n}", "column=n", "reason=type"},
		})
	}
	return all
}
