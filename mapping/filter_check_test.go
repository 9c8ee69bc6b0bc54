package mapping

import (
	"strings"
	"testing"

	"invalidator/cdc/cdctest"
)

// check is what the check of a file says of a template whose column c is declared.
func check(declared, template string) string {
	_, problems := Parse("f.yaml", []byte("version: 1\nteam: t\npools: [u]\nmappings:\n  - name: m\n    table: a.b\n    columns: {c: \""+declared+"\"}\n    keys:\n      - \""+template+"\"\n"))
	var texts []string
	for _, p := range problems {
		texts = append(texts, strings.TrimPrefix(p.String(), "f.yaml:9:"))
	}
	return strings.Join(texts, "\n")
}

func TestFilterOfADeclaredTypeThatItCannotTake(t *testing.T) {
	for _, c := range []struct{ declared, template, want string }{
		{"bigint unsigned", "u:{c|date('%F')}", `15: filter "date" takes a date or a timestamp, and column c is bigint unsigned (it may go through base64, base64url, md5, sha1, sha256, int, div, mod)`},
		{"int", "u:{c|uuid}", `15: filter "uuid" takes 16 bytes or the text of a UUID, and column c is int (it may go through base64, base64url, md5, sha1, sha256, int, div, mod)`},
		{"decimal(10,2)", "u:{c|mod(16)}", `15: filter "mod" takes an integer, and column c is decimal(10,2) (put int before it)`},
		{"decimal(10,2)", "u:{c|int|mod(16)}", ""},
		{"decimal(20,0)", "u:{c|mod(16)}", ""},
		{"decimal(20)", "u:{c|mod(16)}", ""},
		{"numeric", "u:{c|mod(16)}", ""},
		{"varbinary(16)", "u:{c|int}", `15: filter "int" takes a number or a boolean, and column c is varbinary(16) (it may go through hex, base64, base64url, uuid, md5, sha1, sha256)`},
		{"binary(8)", "u:{c|uuid}", `15: filter "uuid" takes 16 bytes or the text of a UUID, and column c is binary(8)`},
		{"binary(16)", "u:{c|uuid}", ""},
		{"varbinary(255)", "u:{c|uuid}", ""},
		{"bytea", "u:{c|md5(8)}", ""},
		{"json", "u:{c|lower}", `15: filter "lower" takes what has one text, and column c is json (put json('path') before it)`},
		{"jsonb", "u:{c|json('a.b')|lower}", ""},
		{"jsonb", "u:{c|json('a')|mod(3)}", ""},
		{"jsonb", "u:{c}", `13: column c is a JSON document, which no key can hold (use json('path') to one scalar)`},
		{"jsonb", "u:{c|default('none')}", `13: column c is a JSON document, which no key can hold (use json('path') to one scalar)`},
		{"jsonb", "u:{c|elements}", ""},
		{"double precision", "u:{c|int}", `13: column c is a float, which no key can hold (use a column with one text)`},
		{"text[]", "u:{c|mod(3)}", `15: filter "mod" takes an integer, and column c is text[] (put elements before it)`},
		{"integer[]", "u:{c|elements|mod(3)}", ""},
		{"set('a','b')", "u:{c|elements(',')}", ""},
		{"uuid", "u:{c|date('%F')}", `15: filter "date" takes a date or a timestamp, and column c is uuid (it may go through hex, base64, base64url, uuid, md5, sha1, sha256)`},
		{"uuid", "u:{c|uuid|upper}", ""},
		{"time", "u:{c|unix}", `15: filter "unix" takes a date or a timestamp, and column c is time (it may go through hex, base64, base64url, md5, sha1, sha256)`},
		{"timestamp(3) with time zone", "u:{c|unix_ms}", ""},
		{"datetime(6)", "u:{c|date('%F', 'Europe/Berlin')}", ""},
		{"date", "u:{c|div(2)}", `15: filter "div" takes a number, and column c is date (it may go through hex, base64, base64url, md5, sha1, sha256, date, unix, unix_ms)`},
		{"date", "u:{c|unix|div(86400)}", ""},
		{"boolean", "u:{c|int}", ""},
		{"bit(1)", "u:{c|hex}", ""}, // text in Postgres
		{"geometry", "u:{c|mod(3)}", `8: warning`},

		// what a filter gives is known too
		{"varchar(50)", "u:{c|md5|mod(3)}", `19: filter "mod" takes an integer, and md5 gives text (it may go through hex, base64, base64url, uuid, md5, sha1, sha256)`},
		{"varchar(50)", "u:{c|int|hex}", `19: filter "hex" takes bytes or text, and int gives an integer (it may go through base64, base64url, md5, sha1, sha256, int, div, mod)`},
		{"varchar(50)", "u:é:{c|int|date('%F')}", `21: filter "date" takes a date or a timestamp, and int gives an integer (it may go through base64, base64url, md5, sha1, sha256, int, div, mod)`},
		{"varchar(50)", "u:{c|mod(3)|pad(2)|upper}", ""},
		{"datetime", "u:{c|default('none')}", ""},
	} {
		got := check(c.declared, c.template)
		if c.want == `8: warning` {
			if !strings.Contains(got, "warning") || strings.Contains(got, "filter") {
				t.Errorf("%s: %s: got %s, want a warning of the type alone", c.declared, c.template, got)
			}
		} else if got != c.want {
			t.Errorf("%s: %s: got\n\t%s, want\n\t%s", c.declared, c.template, got, c.want)
		}
	}
}

// What is refused by a declared type would be skipped for every value of it, and what is let through is not skipped for its
// type: the check and the renderer say the same of each row of the table of types.
func TestCheckAndRendererAgreeOnTypes(t *testing.T) {
	for _, v := range cdctest.Types(t) {
		declared := v.Type
		if word := typeWord(declared); word == "bit" || word == "boolean" { // each server has another kind of them
			continue
		}
		for _, f := range filters {
			if f == filterElements || f == filterDefault {
				continue
			}
			checked := f.takes&typesOf(declared) != 0
			rendered := f.takes&typesOfKind(v.Value.Kind) != 0
			if checked && !rendered {
				t.Errorf("%s of %s, which %s shows as %q: the check lets it through, and no value of it is taken", f.name, declared, v.Server, v.Value.S)
			}
			// A text's Kind does not say what may stand in it: there the filter itself is asked.
			if !checked && rendered {
				if got := filtered(t, f.example(), v.Value); got != "skip type" {
					t.Errorf("%s of %s: the check refuses it, and %q gives %q", f.example(), declared, v.Value.S, got)
				}
			}
		}
	}
}
