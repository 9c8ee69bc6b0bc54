//go:build integration

package mysql

import (
	"testing"

	"invalidator/cdc"
)

func TestStreamsAndResumes(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id BIGINT UNSIGNED PRIMARY KEY, email VARCHAR(40))")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1,'a'),(2,NULL)", "UPDATE u SET email='b' WHERE id=1", "DELETE FROM u WHERE id=2")
		got := tp.take(4)
		b.wants(got,
			"u c - {id=1 email=a}", "u c - {id=2 email=NULL}",
			"u u {id=1 email=a} {id=1 email=b}",
			"u d {id=2 email=NULL} -")
		if c := got[1]; c.Ordinal != 1 || c.Tx == "" || c.CommitTime.IsZero() || c.Source != b.db ||
			len(c.KeyColumns) != 1 || c.KeyColumns[0] != "id" || !c.Columns.List[0].Key || c.Columns.List[0].Type != "bigint unsigned" {
			t.Errorf("the second change is %+v", c)
		}
		middle := tp.commits[0].at
		if err := tp.stop(); err != nil {
			t.Fatalf("Run gave %v after its context ended", err)
		}
		b.do("INSERT INTO u VALUES (18446744073709551615,'z')")

		again := b.run(b.feeder(), middle)
		b.wants(again.take(3),
			"u u {id=1 email=a} {id=1 email=b}", "u d {id=2 email=NULL} -", "u c - {id=18446744073709551615 email=z}")
	})
}
