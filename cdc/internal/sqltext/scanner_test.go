package sqltext

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"DROP TABLE t":                             "DROP|TABLE|t",
		"a/**/b /* x ' */ c -- d\ne # f\n--g":      "a|b|c|e|-|-|g",
		"DROP /*!50100 TABLE */ t /*M!100509 ; */": "DROP|TABLE|t|;",
		"`a``b` 'it''s' \"q\\\"\" 'x\\'y' `z\\`":   "<a`b>|<it's>|<q\">|<x'y>|<z\\>",
		"`open":                                    "<open>",
		"größe(1,$a)":                              "größe|(|1|,|$a|)",
		"/* open":                                  "",
		"''":                                       "<>",
	} {
		var got []string
		for s := (&Scanner{Text: text}); ; {
			tok := s.Next()
			if tok == (Token{}) {
				break
			}
			if tok.Quoted {
				tok.Text = "<" + tok.Text + ">"
			}
			got = append(got, tok.Text)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"t":                           "[db.t]",
		"a.t, `x y`.`t``` , \"u\"; b": "[a.t x y.t` db.u]",
		"a.*, t.*":                    "[db.a db.t]",
		"a . b.*":                     "[a.b]",
		", t":                         "[]",
		"":                            "[]",
		"a.,b":                        "[db.a]",
	} {
		if got := fmt.Sprint((&Scanner{Text: text}).Names("db")); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestSkipping(t *testing.T) {
	s := &Scanner{Text: "if Exists (a TO (to) b) `to` TO c (d) e) f"}
	s.Skip("IF", "NOT", "EXISTS")
	if got := s.SkipTo("FROM", "TO"); got != "TO" || s.Keyword() != "C" {
		t.Errorf("%q, then %q", got, s.Text)
	}
	if s.CloseParens(); !s.Has("F") || s.Has("F") || s.SkipTo("G") != "" {
		t.Errorf("left %q", s.Text)
	}
	s = &Scanner{Text: "`DROP` DROP"}
	if s.Has("DROP") || s.Keyword() != "" || s.Keyword() != "DROP" || s.Keyword() != "" {
		t.Error("a quoted name is no keyword")
	}
}

// Each word takes something, so that every loop over a text ends, and a name that is written in quotes is read as it was.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{"DROP TABLE IF EXISTS a.b, `c``d`", "/*!50100 x */", "'\\", "--", "\"", "a.*.b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &Scanner{Text: text}
		for n := len(text); ; n = len(s.Text) {
			if s.Next() == (Token{}) {
				break
			}
			if len(s.Text) >= n {
				t.Fatalf("nothing was taken of %q", s.Text)
			}
		}
		quoted := "`" + strings.ReplaceAll(text, "`", "``") + "`"
		got := (&Scanner{Text: quoted + "." + quoted + "," + quoted}).Names("db")
		if want := []cdc.TableID{{Schema: text, Table: text}, {Schema: "db", Table: text}}; !slices.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	})
}
