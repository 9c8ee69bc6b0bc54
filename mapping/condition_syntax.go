package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"
	exprfile "github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// token is how the library names what it did not expect.
var token = regexp.MustCompile(`(?:Operator|Identifier|Bracket|Number|String|Bytes)\("(.*)"\)`)

// parseSyntax has the library parse a condition, and says in our words what is wrong.
func parseSyntax(text string) (_ ast.Node, bad *fault) {
	tree, err := parser.Parse(text)
	if err == nil {
		return tree.Node, nil
	}
	bad = &fault{severity: SeverityError, what: "not a condition: " + err.Error()}
	var e *exprfile.Error
	if !errors.As(err, &e) {
		return nil, bad
	}
	bad.at = byteOf(text, e.From)
	what := e.Message
	if m := token.FindStringSubmatch(what); m != nil {
		what = fmt.Sprintf("unexpected %q", m[1])
		if m[1] == "=" {
			bad.hint = "write == to compare"
		}
	}
	switch {
	case strings.HasPrefix(what, "unexpected token EOF"):
		what, bad.at = "it ends too early", len(strings.TrimRight(text, " \n"))
	case strings.Contains(what, "value out of range"), strings.Contains(what, "too large"):
		what, bad.hint = "the number is too large", "write it in quotes: it is compared as a number with a number"
	case strings.HasPrefix(what, "literal not terminated"):
		what, bad.hint = "a text without its closing quote", `write \' for a quote within a text`
	}
	bad.what = "not a condition: " + what
	return nil, bad
}

// byteOf is where a character begins, by its number, as the library counts them.
func byteOf(text string, character int) int {
	for i := range text {
		if character == 0 {
			return i
		}
		character--
	}
	return len(text)
}
