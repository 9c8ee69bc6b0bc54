package mapping

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"invalidator/cdc"
)

// Each example of docs/FILTERS.md gives what it says there, and each filter has one.
func TestDocsOfFilters(t *testing.T) {
	data, err := os.ReadFile("../docs/FILTERS.md")
	if err != nil {
		t.Fatal(err)
	}
	cell := regexp.MustCompile("^\\| `\\{c\\\\\\|(.*)\\}` \\| `(.*)` \\| (.*) \\| (.*) \\|$")
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		m := cell.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			if strings.HasPrefix(line, "| `{") {
				t.Errorf("no example: %s", line)
			}
			continue
		}
		filters, declared, want := strings.ReplaceAll(m[1], `\|`, "|"), m[2], strings.ReplaceAll(m[4], "`", "")
		for _, f := range chain(t, filters) {
			seen[f.name] = true
		}
		problems := check(declared, `u:{c|`+strings.ReplaceAll(filters, `"`, `\"`)+"}")
		if want == "refused" {
			if !strings.Contains(problems, "filter") {
				t.Errorf("%s is not refused", line)
			}
			continue
		}
		if problems != "" {
			t.Errorf("%s is refused: %s", line, problems)
		}
		s := set(t, "u:{c|"+filters+"}")
		got, skipped := keys(s, change(s, cdc.Insert, nil, row{"c": documented(t, declared, m[3])}))
		if want = "u:" + strings.ReplaceAll(want, " and ", " u:"); want == "u:no key" {
			want = ""
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s gives %q, and skips %q", line, got, skipped)
		}
	}
	for _, name := range filterNames() {
		if !seen[name] {
			t.Errorf("filter %s has no example", name)
		}
		if !strings.Contains(string(data), "| `"+name) && !strings.Contains(string(data), ", `"+name) {
			t.Errorf("filter %s is not in the table", name)
		}
	}
}

// documented is a value as the page shows it.
func documented(t *testing.T, declared, shown string) cdc.Value {
	if shown == "NULL" {
		return null
	}
	s := strings.Trim(shown, "`")
	v := text(s)
	switch is := typesOf(declared); {
	case is&typeInteger != 0 && is&typeBool == 0 && is&typeDecimal == 0:
		v.Kind = cdc.Integer
	case is&typeDecimal != 0:
		v.Kind = cdc.Decimal
	case is&typeBool != 0:
		v.Kind = cdc.Bool
	case is == typeJSON:
		v.Kind = cdc.JSON
	case is == typeBytes:
		raw, err := hex.DecodeString(s[2:])
		if err != nil {
			t.Fatal(err)
		}
		v.Kind, v.S = cdc.Bytes, string(raw)
		if declared == "bytea" {
			v.Kind = cdc.Bytea
		}
	}
	return v
}
