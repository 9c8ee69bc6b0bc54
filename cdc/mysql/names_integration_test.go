//go:build integration

package mysql

import (
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

// Names are compared as the server does, in each database by itself.
func TestD7Names(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			b := newOwn(t, service, 1, lowerNames).bed(t)
			inc, err := cdc.NewInclude([]string{"A_" + b.db + ".Users", "A_" + b.db + ".nowhere"})
			if err != nil {
				t.Fatal(err)
			}
			f := b.feeder(func(c *Config) { c.Include = inc })
			b.exec(b.admin, "CREATE DATABASE A_"+b.db, "CREATE DATABASE B_"+b.db,
				"CREATE TABLE A_"+b.db+".Users (`Key` INT PRIMARY KEY, `order` INT)", "CREATE TABLE B_"+b.db+".Users (`Key` INT PRIMARY KEY, `order` INT)")
			tp := b.run(f, cdc.Position{})
			b.exec(b.admin, "INSERT INTO b_"+b.db+".users VALUES (1,1)", "INSERT INTO a_"+b.db+".USERS VALUES (2,2)", "TRUNCATE A_"+b.db+".USERS",
				"TRUNCATE B_"+b.db+".USERS")
			got := tp.take(2)
			b.wants(got, "users c - {Key=2 order=2}", "users t - -")
			if got[0].Schema != "a_"+b.db || got[1].Schema != "a_"+b.db {
				t.Errorf("schemas %s and %s", got[0].Schema, got[1].Schema)
			}
			found := findings(b.check(f))
			if !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, "nowhere") && strings.Contains(s, "matches no table") }) ||
				!slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, "lower_case_table_names") }) {
				t.Errorf("found %q", found)
			}
			tables, err := f.Describe(t.Context(), inc)
			if err != nil || len(tables) != 1 || tables[0].TableID != (cdc.TableID{Schema: "a_" + b.db, Table: "users"}) {
				t.Errorf("described %v, %v", tables, err)
			}
		})
	}
}

// Where case counts, it counts here, and so do quotes and reserved words.
func TestD7NamesWithCase(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (`Key` INT PRIMARY KEY, `order` INT)", "CREATE TABLE `U` (id INT PRIMARY KEY)", "CREATE TABLE `a-b.c` (`x``y` INT PRIMARY KEY)")
		inc, err := cdc.NewInclude([]string{b.db + ".u", b.db + ".a-b.c"})
		if err != nil {
			t.Fatal(err)
		}
		tp := b.run(b.feeder(func(c *Config) { c.Include = inc }), cdc.Position{})
		b.do("INSERT INTO `U` VALUES (1)", "INSERT INTO u VALUES (1,2)", "TRUNCATE `U`", "INSERT INTO `a-b.c` VALUES (3)", "TRUNCATE `a-b.c`")
		b.wants(tp.take(3), "u c - {Key=1 order=2}", "a-b.c c - {x`y=3}", "a-b.c t - -")
	})
}
