package postgres

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

// Postgres 18 can publish stored generated columns, and refuses the application's own updates of a published table whose FULL
// identity takes in one that is not published. The rows here are what the servers give for u (id int PRIMARY KEY, full_name text
// GENERATED ALWAYS AS (…)); TestB5GeneratedColumnsOfEighteen asks one.
func TestB5PreflightOfEighteen(t *testing.T) {
	f, err := New(Config{Name: "t", Hosts: []string{"127.0.0.1:5432"}, Database: "d", User: "u", Publication: "pub", Slot: "slot"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		identity   string
		from18     bool
		published  bool
		unsendable []string
		severity   cdc.Severity // of the finding about full_name
	}{
		{"17, identity full", "f", false, false, []string{"full_name"}, cdc.SeverityWarning},
		{"stored, default identity", "d", true, false, nil, ""},
		{"stored, identity full", "f", true, false, nil, ""},
		{"publish_generated_columns = none, default identity", "d", true, false, []string{"full_name"}, cdc.SeverityWarning},
		{"publish_generated_columns = none, identity full", "f", true, false, []string{"full_name"}, cdc.SeverityError},
		{"publish_generated_columns = none, identity full, published", "f", true, true, []string{"full_name"}, cdc.SeverityError},
		{"virtual, identity full", "f", true, false, []string{"full_name"}, cdc.SeverityError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			columns := []string{"id", "full_name"}
			u := tableInfo{Schema: "public", Table: "u", Identity: tt.identity, HasIdentity: true, Owned: true, From18: tt.from18, Unsendable: tt.unsendable,
				Published: tt.published, Columns: columns}
			if tt.published {
				u.Sent = []string{"id"}
			}
			c := &checker{f: f}
			c.table(u, nil)
			found := slices.DeleteFunc(c.found, func(x cdc.Finding) bool { return !strings.Contains(x.String(), "generated") })
			switch {
			case tt.severity == "" && len(found) == 0:
			case tt.severity == "" || len(found) != 1 || found[0].Severity != tt.severity || !strings.Contains(found[0].String(), "full_name"):
				t.Errorf("found %q, want %q", found, tt.severity)
			}
			stops := tt.severity == cdc.SeverityError
			if stops && (!strings.Contains(found[0].Hint, `ALTER PUBLICATION "pub" SET (publish_generated_columns = stored)`) ||
				strings.Contains(found[0].What, "fail now") != tt.published) {
				t.Errorf("found %q", found)
			}
			// What would stop the application is never added to a publication.
			if missing := unpublished([]tableInfo{u}, nil); (len(missing) == 0) != stops {
				t.Errorf("to be published: %v", missing)
			}
			if lack := f.unsent(u, nil); (lack.What != "") != stops {
				t.Errorf("unsent: %q", lack)
			}
			d := f.describeColumn(u, columnInfo{Schema: "public", Table: "u", Name: "full_name", Type: "text"})
			if (d.Unsent.What != "") != (len(tt.unsendable) > 0) {
				t.Errorf("column unsent: %q", d.Unsent)
			}
		})
	}
	for version, want := range map[int]string{170006: `CREATE PUBLICATION "pub" FOR TABLE ONLY "public"."u"`,
		180000: `CREATE PUBLICATION "pub" FOR TABLE ONLY "public"."u" WITH (publish_generated_columns = stored)`} {
		if got := f.createStatement([]tableInfo{{Schema: "public", Table: "u"}}, serverInfo{Version: version}); got != want {
			t.Errorf("got %s", got)
		}
	}
}
