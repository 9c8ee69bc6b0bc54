//go:build integration

package mysql

import (
	"context"
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

func (b *bed) check(f *Feeder) []cdc.Finding {
	b.Helper()
	found, err := f.Check(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return found
}

func findings(found []cdc.Finding) (out []string) {
	for _, x := range found {
		out = append(out, x.String())
	}
	return out
}

func TestCheckOfAGoodSource(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		if found := b.check(b.feeder()); len(found) > 0 {
			t.Errorf("found %q", findings(found))
		}
	})
}

func TestCheckOfTables(t *testing.T) {
	onBoth(t, func(b *bed) {
		if found := b.check(b.feeder()); len(found) != 1 || !strings.Contains(found[0].What, "no table matches") {
			t.Errorf("found %q", findings(found))
		}
		b.do("CREATE TABLE keyless (a INT)", "CREATE TABLE u (id INT PRIMARY KEY, d VARCHAR(9) CHARACTER SET dec8)")
		found := b.check(b.feeder())
		if len(found) != 2 || found[0].Table != b.db+".keyless" || found[0].Hint == "" || found[1].Column != "d" {
			t.Errorf("found %q", findings(found))
		}
	})
}

func TestCheckOfPrivileges(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		as := b.asOwnUser()
		b.exec(b.admin, "REVOKE REPLICATION SLAVE ON *.* FROM '"+b.ownUser()+"'@'%'")
		found := b.check(b.feeder(as))
		if len(found) != 1 || found[0].Severity != cdc.SeverityError || !strings.HasPrefix(found[0].Hint, "GRANT REPLICATION SLAVE") {
			t.Errorf("found %q", findings(found))
		}
		if e := b.fails(b.feeder(as), cdc.Position{}); e.Retry || !strings.Contains(e.Hint, "GRANT") {
			t.Errorf("Run gave %v", e)
		}
	})
}

func TestCheckOfMetadata(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		defer b.withMetadata("MINIMAL")()
		found := b.check(b.feeder())
		if !slices.ContainsFunc(found, func(x cdc.Finding) bool { return x.Hint == "SET GLOBAL binlog_row_metadata = FULL" }) {
			t.Errorf("found %q", findings(found))
		}
	})
}
