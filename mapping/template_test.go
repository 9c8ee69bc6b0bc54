package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTemplateColumns(t *testing.T) {
	parts, _ := parseTemplate("u:{b}:{a|lower|trim}:{b|hex}:v3", false)
	if got := (&Template{variants: [][]part{parts}}).Columns(); !cmp.Equal(got, []string{"b", "a"}) {
		t.Errorf("got %q", got)
	}
}

// Columns' names are the database's: anything but the signs of the language.
func TestColumnNames(t *testing.T) {
	for _, name := range []string{"id", "Größe", "user id", "a-b", "a:b", "a'b"} {
		parts, faults := parseTemplate("u:{"+name+"|lower}", false)
		if faults != nil || len(parts) != 2 || parts[1].column != name {
			t.Errorf("%q: got %v, %v", name, parts, faults)
		}
	}
}

// A template that is accepted says the same when it is written down from its parts.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"user:{id}", "u:{a|lower|trim}{b}", "u:{{x}}{c|hex}", "u:{id}#8", "u:{", "}", "{}", "u: {a}", "u:{a|lower(1)}", "é:{ü}",
		"u:{n|mod(16)|pad(4, 'é')}", "u:{at|date('{%Y}|', 'Europe/Berlin')}", "u:{a|default('it''s')|urlencode}", "u:{j|json('\"a.b\"[0].c')|int}", "u:{a|elements(',')|upper}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		free, _ := parseTemplate(text, true)
		if again, _ := parseTemplate(write(free), true); free != nil && write(again) != write(free) {
			t.Errorf("%q reads as %q where any byte may stand", text, write(again))
		}
		parts, faults := parseTemplate(text, false)
		if parts != nil && write(free) != write(parts) {
			t.Errorf("%q is another template where any byte may stand: %q", text, write(free))
		}
		for _, fault := range faults {
			if fault.at < 0 || fault.at > len(text) {
				t.Errorf("a fault at byte %d of %d", fault.at, len(text))
			}
			if fault.severity == SeverityError && parts != nil {
				t.Error("parts in spite of an error")
			}
		}
		if parts == nil {
			return
		}
		again, _ := parseTemplate(write(parts), false)
		if write(again) != write(parts) || len(again) != len(parts) {
			t.Errorf("%q reads as %q", text, write(again))
		}
		for _, p := range parts {
			if strings.ContainsFunc(p.literal, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
				t.Errorf("memcached cannot hold %q", p.literal)
			}
		}
	})
}

func write(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		if p.column == "" {
			b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(p.literal))
			continue
		}
		b.WriteString("{" + p.column)
		for _, f := range p.filters {
			b.WriteString("|" + f.name)
			for i, a := range f.args {
				b.WriteString([]string{"(", ","}[min(i, 1)])
				if a.isText {
					b.WriteString("'" + strings.ReplaceAll(a.text, "'", "''") + "'")
				} else {
					fmt.Fprint(&b, a.number)
				}
			}
			if len(f.args) > 0 {
				b.WriteString(")")
			}
		}
		b.WriteString("}")
	}
	return b.String()
}
