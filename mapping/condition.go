package mapping

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// condition is a compiled `when`. It is immutable; what it reads of a change is bound to a plan's columns by their order
// in columns.
//
// The library parses; what follows keeps the part of its language that can be decided exactly, and evaluates it here: with
// three truths, so that what a log leaves out never loses a delete, with integers and decimals of any size, and without an
// allocation.
type condition struct {
	root    *term
	columns []string // distinct
}

// maxCondition bounds a condition's text, in bytes: its parser is recursive.
const maxCondition = 4096

// operator is what a term does.
type operator uint8

const (
	opAnd operator = iota
	opOr
	opNot
	opChanged // any of columns
	opIsKind  // the change is of one of kinds
	opTruth   // left is a boolean that is true
	opIsNull
	opEqual
	opLess
	opLessEqual
	opIn
	opContains
	opStartsWith
	opEndsWith
	opMatches
)

// term is one node of a condition.
type term struct {
	op          operator
	a, b        *term          // of and, or; a of not
	left, right operand        // of what compares
	list        []operand      // of in
	columns     []int          // of changed: indexes of condition.columns
	kinds       changeKind     // of opIsKind
	pattern     *regexp.Regexp // of matches
}

// changeKind is a set of what a condition calls op.
type changeKind uint8

const (
	kindInsert changeKind = 1 << iota
	kindUpdate
	kindDelete
)

var changeKinds = map[string]changeKind{"insert": kindInsert, "update": kindUpdate, "delete": kindDelete}

// operand is a column of an image, or else a literal.
type operand struct {
	image   Image // empty: a literal
	column  int   // index of condition.columns
	text    string
	literal literalKind
}

type literalKind uint8

const (
	literalText literalKind = iota
	literalNumber
	literalBool
	literalNull
)

// parseCondition reads a condition. The fault's place is a byte of text.
func parseCondition(text string) (*condition, *fault) {
	if len(text) > maxCondition {
		return nil, &fault{0, SeverityError, fmt.Sprintf("the condition is over %d bytes", maxCondition), "use in […], or split the template"}
	}
	tree, bad := parseSyntax(text)
	if bad != nil {
		return nil, bad
	}
	p := &conditionParser{text: text, c: &condition{}}
	p.c.root = p.truth(tree)
	if p.bad != nil {
		return nil, p.bad
	}
	return p.c, nil
}

// conditionParser turns the library's tree into terms. After the first fault what it returns is of no use.
type conditionParser struct {
	text string
	c    *condition
	bad  *fault
}

func (p *conditionParser) fail(n ast.Node, hint, format string, args ...any) {
	for m, ok := n.(*ast.MemberNode); ok; m, ok = n.(*ast.MemberNode) { // which stands where its first word does
		n = m.Node
	}
	if p.bad == nil {
		p.bad = &fault{byteOf(p.text, n.Location().From), SeverityError, fmt.Sprintf(format, args...), hint}
	}
}

func (p *conditionParser) column(name string) int {
	i := slices.Index(p.c.columns, name)
	if i < 0 {
		i = len(p.c.columns)
		p.c.columns = append(p.c.columns, name)
	}
	return i
}

// truth reads what is true or false.
func (p *conditionParser) truth(n ast.Node) *term {
	switch n := n.(type) {
	case *ast.UnaryNode:
		if n.Operator == "!" || n.Operator == "not" {
			return &term{op: opNot, a: p.truth(n.Node)}
		}
	case *ast.BinaryNode:
		return p.binary(n)
	case *ast.CallNode:
		return p.call(n)
	case *ast.MemberNode:
		return &term{op: opTruth, left: p.operand(n)}
	}
	p.refuse(n)
	return nil
}

func (p *conditionParser) binary(n *ast.BinaryNode) *term {
	switch n.Operator {
	case "&&", "and":
		return &term{op: opAnd, a: p.truth(n.Left), b: p.truth(n.Right)}
	case "||", "or":
		return &term{op: opOr, a: p.truth(n.Left), b: p.truth(n.Right)}
	case "==":
		return p.equal(n)
	case "!=":
		return &term{op: opNot, a: p.equal(n)}
	case "<":
		return p.ordered(n, opLess, n.Left, n.Right)
	case "<=":
		return p.ordered(n, opLessEqual, n.Left, n.Right)
	case ">":
		return p.ordered(n, opLess, n.Right, n.Left)
	case ">=":
		return p.ordered(n, opLessEqual, n.Right, n.Left)
	case "in":
		return p.in(n)
	case "contains", "startsWith", "endsWith", "matches":
		return p.textTest(n)
	}
	p.refuse(n)
	return nil
}

// call reads changed(a, b).
func (p *conditionParser) call(n *ast.CallNode) *term {
	if callee, ok := n.Callee.(*ast.IdentifierNode); !ok || callee.Value != "changed" {
		p.refuse(n)
		return nil
	}
	if len(n.Arguments) == 0 {
		p.fail(n, "write changed(name, bio)", "changed names no column")
		return nil
	}
	t := &term{op: opChanged}
	for _, a := range n.Arguments {
		var name string
		switch a := a.(type) {
		case *ast.IdentifierNode:
			name = a.Value
		case *ast.StringNode:
			name = a.Value
		case *ast.MemberNode:
			p.fail(a, "write changed(name)", "changed compares both images of a column")
			return nil
		}
		if name == "" {
			p.fail(a, "write changed(name, bio)", "changed takes names of columns")
			return nil
		}
		t.columns = append(t.columns, p.column(name))
	}
	return t
}

// equal reads ==.
func (p *conditionParser) equal(n *ast.BinaryNode) *term {
	left, right := n.Left, n.Right
	if isLiteral(left) { // a column first
		left, right = right, left
	}
	if name, ok := left.(*ast.IdentifierNode); ok {
		switch {
		case name.Value == "op":
			return &term{op: opIsKind, kinds: p.kind(right)}
		case (name.Value == string(Before) || name.Value == string(After)) && isNull(right):
			if name.Value == string(Before) {
				return &term{op: opIsKind, kinds: kindInsert}
			}
			return &term{op: opIsKind, kinds: kindDelete}
		}
	}
	l, r := p.operand(left), p.operand(right)
	switch {
	case p.bad != nil:
	case l.image == "":
		p.fail(n, "compare a column with it", "a comparison of two constants")
	case r.literal == literalNull && r.image == "":
		return &term{op: opIsNull, left: l}
	}
	return &term{op: opEqual, left: l, right: r}
}

// kind reads what op is compared with.
func (p *conditionParser) kind(n ast.Node) changeKind {
	s, ok := n.(*ast.StringNode)
	if !ok {
		p.fail(n, "write op == 'update'", "op is compared with a text")
		return 0
	}
	k := changeKinds[s.Value]
	if k == 0 {
		p.fail(n, didYouMean(s.Value, []string{"insert", "update", "delete"}), "op is 'insert', 'update' or 'delete', never '%s'", s.Value)
	}
	return k
}

func (p *conditionParser) ordered(n *ast.BinaryNode, op operator, left, right ast.Node) *term {
	t := &term{op: op, left: p.operand(left), right: p.operand(right)}
	if p.bad != nil {
		return t
	}
	if t.left.image == "" && t.right.image == "" {
		p.fail(n, "compare a column with it", "a comparison of two constants")
	}
	for _, o := range []operand{t.left, t.right} {
		if o.image == "" && (o.literal == literalNull || o.literal == literalBool) {
			p.fail(n, "compare by == or !=", "%s is neither less nor greater than anything", o.text)
		}
	}
	return t
}

func (p *conditionParser) in(n *ast.BinaryNode) *term {
	list, ok := n.Right.(*ast.ArrayNode)
	if !ok || len(list.Nodes) == 0 {
		p.fail(n.Right, "write after.status in ['draft', 'gone']", "in takes a list of constants")
		return nil
	}
	if name, ok := n.Left.(*ast.IdentifierNode); ok && name.Value == "op" {
		t := &term{op: opIsKind}
		for _, e := range list.Nodes {
			t.kinds |= p.kind(e)
		}
		return t
	}
	t := &term{op: opIn, left: p.operand(n.Left)}
	if p.bad == nil && t.left.image == "" {
		p.fail(n.Left, "write after.status in ['draft', 'gone']", "in takes a column")
	}
	for _, e := range list.Nodes {
		if !isLiteral(e) && p.bad == nil {
			p.fail(e, "write after.status in ['draft', 'gone']", "in takes a list of constants")
		}
		t.list = append(t.list, p.operand(e))
	}
	return t
}

func (p *conditionParser) textTest(n *ast.BinaryNode) *term {
	ops := map[string]operator{"contains": opContains, "startsWith": opStartsWith, "endsWith": opEndsWith, "matches": opMatches}
	t := &term{op: ops[n.Operator], left: p.operand(n.Left), right: p.operand(n.Right)}
	switch {
	case p.bad != nil:
	case t.left.image == "":
		p.fail(n.Left, "write after.name "+n.Operator+" 'x'", "%s takes a column on its left", n.Operator)
	case t.right.image == "" && t.right.literal != literalText, t.op == opMatches && t.right.image != "":
		p.fail(n.Right, "write after.name "+n.Operator+" 'x'", "%s takes a text on its right", n.Operator)
	case t.op == opMatches:
		pattern, err := regexp.Compile(t.right.text)
		if err != nil {
			p.fail(n.Right, "the syntax is RE2's", "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		t.pattern = pattern
	}
	return t
}

// operand reads a column of an image, or a literal.
func (p *conditionParser) operand(n ast.Node) operand {
	switch n := n.(type) {
	case *ast.MemberNode:
		return p.member(n)
	case *ast.StringNode:
		return operand{text: n.Value}
	case *ast.IntegerNode, *ast.FloatNode:
		return p.number(n, "")
	case *ast.UnaryNode:
		if n.Operator == "-" && isNumberNode(n.Node) {
			return p.number(n.Node, "-")
		}
	case *ast.BoolNode:
		return operand{text: fmt.Sprint(n.Value), literal: literalBool}
	}
	if isNull(n) {
		return operand{text: "null", literal: literalNull}
	}
	p.refuse(n)
	return operand{}
}

func (p *conditionParser) member(n *ast.MemberNode) operand {
	image, ok := n.Node.(*ast.IdentifierNode)
	name, named := n.Property.(*ast.StringNode)
	switch {
	case ok && image.Value != string(Before) && image.Value != string(After):
		p.fail(image, didYouMean(image.Value, []string{string(Before), string(After)}), "%q is no image: a column is before.name or after.name", image.Value)
	case !ok || !named || n.Optional || name.Value == "":
		p.fail(n, "write after.name, or after['a name']", "not a column of before or after")
	default:
		return operand{image: Image(image.Value), column: p.column(name.Value)}
	}
	return operand{}
}

// number takes a number's digits as they are written: the library's own would be a float.
func (p *conditionParser) number(n ast.Node, sign string) operand {
	at := n.Location()
	text := sign + p.text[byteOf(p.text, at.From):byteOf(p.text, at.To)]
	if _, ok := parseNumber(text); !ok {
		p.fail(n, "write its digits, as 1000 or 0.5", "a number that no column shows: %s", text)
	}
	return operand{text: text, literal: literalNumber}
}

// refuse names what is not part of a condition.
func (p *conditionParser) refuse(n ast.Node) {
	const hint = "a condition is made of changed(a, b), op, before.x, after.x, comparisons, in, contains, startsWith, endsWith, matches, && || !"
	switch n := n.(type) {
	case *ast.IdentifierNode:
		switch near := didYouMean(n.Value, []string{string(Before), string(After), "op", "changed"}); {
		case n.Value == string(Before) || n.Value == string(After):
			p.fail(n, "write "+n.Value+".name, or "+n.Value+" == null", "%s is a whole image", n.Value)
		case n.Value == "op":
			p.fail(n, "write op == 'update'", "op stands alone")
		case near != "":
			p.fail(n, near, "%q is not known here", n.Value)
		default:
			p.fail(n, "write after."+n.Value+" or before."+n.Value, "column %q of which image?", n.Value)
		}
	case *ast.CallNode:
		name := "?"
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			name = callee.Value
		}
		p.fail(n, or(didYouMean(name, []string{"changed"}), hint), "function %q is unknown", name)
	case *ast.BuiltinNode:
		p.fail(n, hint, "function %q is not part of a condition", n.Name)
	case *ast.BinaryNode:
		p.fail(n, hint, "%s is not part of a condition", n.Operator)
	case *ast.UnaryNode:
		p.fail(n, hint, "%s is not part of a condition here", n.Operator)
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NilNode:
		p.fail(n, "compare it with a column", "a constant is no condition")
	default:
		p.fail(n, hint, "this is not part of a condition")
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func isNull(n ast.Node) bool {
	if id, ok := n.(*ast.IdentifierNode); ok {
		return id.Value == "null"
	}
	_, ok := n.(*ast.NilNode)
	return ok
}

func isNumberNode(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

func isLiteral(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.StringNode, *ast.BoolNode:
		return true
	case *ast.UnaryNode:
		return n.Operator == "-" && isNumberNode(n.Node)
	}
	return isNumberNode(n) || isNull(n)
}
