package mysql

import (
	"strings"
	"testing"

	"invalidator/cdc"
)

func TestRecognise(t *testing.T) {
	table := func(schema, name string) cdc.TableID { return cdc.TableID{Schema: schema, Table: name} }
	for text, want := range map[string]statement{
		"BEGIN":             {verbBegin, "BEGIN", cdc.TableID{}},
		"start transaction": {verbBegin, "START", cdc.TableID{}},
		"COMMIT /* implicit, from Xid_log_event */": {verbEnd, "COMMIT", cdc.TableID{}},
		"ROLLBACK":                       {verbEnd, "ROLLBACK", cdc.TableID{}},
		"rollback work to savepoint `s`": {verbInside, "ROLLBACK", cdc.TableID{}},
		"ROLLBACK TO `s`":                {verbInside, "ROLLBACK", cdc.TableID{}},
		"SAVEPOINT `s`":                  {verbInside, "SAVEPOINT", cdc.TableID{}},
		"XA START X'31',X'',1":           {verbBegin, "XA", cdc.TableID{}},
		"XA END X'31',X'',1":             {verbInside, "XA", cdc.TableID{}},
		"XA COMMIT X'31',X'',1":          {verbEnd, "XA", cdc.TableID{}},
		"XA ROLLBACK X'31',X'',1":        {verbEnd, "XA", cdc.TableID{}},
		"TRUNCATE u":                     {verbTruncate, "TRUNCATE", table("db", "u")},
		"truncate table`a b`.`c``d`":     {verbTruncate, "TRUNCATE", table("a b", "c`d")},
		"-- x\n# y\n/* z */ TRUNCATE /*!50100 TABLE */ app . u": {verbTruncate, "TRUNCATE", table("app", "u")},
		"/*!50100 TRUNCATE TABLE u */":                          {verbTruncate, "TRUNCATE", table("db", "u")},
		"/*M!100100 TRUNCATE TABLE u */":                        {verbTruncate, "TRUNCATE", table("db", "u")},
		"insert low_priority ignore into Über values (1)":       {verbRows, "INSERT", table("db", "Über")},
		"REPLACE u SELECT 1":                                    {verbRows, "REPLACE", table("db", "u")},
		"UPDATE LOW_PRIORITY `x`.u SET a=1":                     {verbRows, "UPDATE", table("x", "u")},
		"DELETE QUICK FROM \"u\"":                               {verbRows, "DELETE", table("db", "u")},
		"LOAD DATA LOCAL INFILE 'TABLE' INTO TABLE `t` (a)":     {verbRows, "LOAD", table("db", "t")},
		"WITH x AS (SELECT 1) UPDATE u SET a=1":                 {verbRows, "WITH", cdc.TableID{}},
		"UPDATE (SELECT 1) x SET a=1":                           {verbRows, "UPDATE", cdc.TableID{}},
		"CREATE SEQUENCE s":                                     {verbOther, "CREATE", cdc.TableID{}},
		"ALTER TABLE u ADD COLUMN IF NOT EXISTS a INT":          {verbOther, "ALTER", cdc.TableID{}},
		"":         {verbOther, "", cdc.TableID{}},
		"`quoted`": {verbOther, "", cdc.TableID{}},
	} {
		if got := recognise(text, "db"); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func FuzzRecognise(f *testing.F) {
	for _, s := range []string{"TRUNCATE /*!50100 TABLE */ `a`.`b`", "/* open", "insert into 'x", "--", "ROLLBACK TO"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := recognise(s, "db")
		if got.table.Table != "" && got.verb != verbTruncate && got.verb != verbRows {
			t.Errorf("%q: %+v has a table", s, got)
		}
		// A comment before a statement never changes what it is.
		if again := recognise("/* x */ "+s, "db"); again != got && !strings.Contains(s, "/") {
			t.Errorf("%q: %+v, behind a comment %+v", s, got, again)
		}
	})
}
