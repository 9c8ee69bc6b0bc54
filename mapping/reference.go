package mapping

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// part is literal text, or else a column through its filters.
type part struct {
	literal string
	column  string // empty: literal
	at      int    // the byte of the template's text where the column's name begins
	filters []*filter
}

// argument is a number, or else a text.
type argument struct {
	text   string
	number uint64
	isText bool
	at     int // the byte of the template's text where it begins
}

// param is what a filter wants as an argument: a number from 1 to max, or else a text.
type param struct {
	text     bool
	max      uint64
	optional bool // it and those behind it may be left out
}

func (a argument) fault(hint, format string, args ...any) *fault {
	return &fault{a.at, SeverityError, fmt.Sprintf(format, args...), hint}
}

// referenceReader reads what stands between the braces of a template.
type referenceReader struct {
	text string
	i    int // the next byte
}

func (r *referenceReader) fail(at int, hint, format string, args ...any) *fault {
	return &fault{at, SeverityError, fmt.Sprintf(format, args...), hint}
}

// until passes over everything before one of the bytes, or before the end.
func (r *referenceReader) until(bytes string) string {
	n := strings.IndexAny(r.text[r.i:], bytes)
	if n < 0 {
		n = len(r.text) - r.i
	}
	r.i += n
	return r.text[r.i-n : r.i]
}

// next is the byte that comes next; 0 at the end.
func (r *referenceReader) next() byte {
	if r.i == len(r.text) {
		return 0
	}
	return r.text[r.i]
}

func (r *referenceReader) take(c byte) bool {
	if r.i == len(r.text) || r.text[r.i] != c {
		return false
	}
	r.i++
	return true
}

// parseReference reads a column and its filters behind the brace at byte open. It returns the place behind the other brace.
func parseReference(text string, open int) (part, int, *fault) {
	r := &referenceReader{text: text, i: open + 1}
	p := part{at: r.i}
	p.column = r.until("|{}")
	unclosed := r.fail(open, "write {{ for a brace", "a { without its }")
	switch {
	case r.next() == 0 || r.next() == '{':
		return p, 0, unclosed
	case p.column == "":
		return p, 0, r.fail(p.at, "write {id}", "a reference without a column")
	case strings.TrimSpace(p.column) != p.column || len(p.column) > 4*maxColumn:
		return p, 0, r.fail(p.at, "write it as {id}, without spaces", "%q is no column's name", p.column)
	}
	for r.take('|') {
		f, fault := r.filter()
		if fault != nil {
			return p, 0, fault
		}
		p.filters = append(p.filters, f)
	}
	if !r.take('}') {
		if r.next() == 0 || r.next() == '{' {
			return p, 0, unclosed
		}
		return p, 0, r.fail(r.i, "a filter ends at | or }", "something stands behind the filter's arguments")
	}
	return p, r.i, checkDefault(p.filters)
}

func (r *referenceReader) filter() (*filter, *fault) {
	at := r.i
	name := r.until("|({}")
	t := filterNamed(name)
	if t == nil {
		hint := didYouMean(name, filterNames())
		if hint == "" {
			hint = "the filters are " + strings.Join(filterNames(), ", ")
		}
		return nil, r.fail(at, hint, "filter %q is unknown", name)
	}
	f := &filter{filterType: t, at: at}
	if r.take('(') {
		var bad *fault
		if f.args, bad = r.arguments(); bad != nil {
			return nil, bad
		}
		if len(f.args) == 0 {
			return nil, r.fail(at, "write "+t.example(), "filter %q has empty parentheses", name)
		}
	}
	if bad := f.checkArguments(); bad != nil {
		return nil, bad
	}
	var bad *fault
	f.step, bad = t.bind(f.args)
	return f, bad
}

// arguments reads numbers and quoted texts up to the closing parenthesis.
func (r *referenceReader) arguments() (args []argument, bad *fault) {
	open := r.i - 1
	for {
		r.spaces()
		a := argument{at: r.i}
		switch c := r.next(); {
		case c == ')' && len(args) == 0:
			r.i++
			return nil, nil
		case c == 0:
			return nil, r.fail(open, "", "a ( without its )")
		case c == '\'':
			if a.isText = true; !r.quoted(&a.text) {
				return nil, r.fail(a.at, "write '' for a quote within a text", "a text without its closing quote")
			}
		case '0' <= c && c <= '9':
			digits := r.digits()
			n, err := strconv.ParseUint(digits, 10, 64)
			if err != nil {
				return nil, a.fault("", "%s is too large", digits)
			}
			a.number = n
		default:
			return nil, a.fault("write 16, or 'text'", "an argument is a number or a text in single quotes, not %q", r.until(",|)}"))
		}
		args = append(args, a)
		r.spaces()
		switch {
		case r.take(')'):
			return args, nil
		case !r.take(','):
			return nil, r.fail(r.i, "arguments stand apart by commas, and end with )", "a , or ) is missing")
		}
	}
}

func (r *referenceReader) spaces() {
	for r.take(' ') {
	}
}

func (r *referenceReader) digits() string {
	start := r.i
	for c := r.next(); '0' <= c && c <= '9'; c = r.next() {
		r.i++
	}
	return r.text[start:r.i]
}

// quoted reads a text in single quotes, in which a doubled quote is one.
func (r *referenceReader) quoted(text *string) bool {
	r.i++
	for {
		*text += r.until("'")
		if !r.take('\'') {
			return false
		}
		if !r.take('\'') {
			return true
		}
		*text += "'"
	}
}

// example is the filter as a team would write it.
func (t *filterType) example() string {
	if t.usage == "" {
		return t.name
	}
	return t.usage
}

// checkArguments compares the arguments with what the filter wants.
func (f *filter) checkArguments() *fault {
	required := 0
	for _, p := range f.params {
		if !p.optional {
			required++
		}
	}
	if n := len(f.args); n < required || n > len(f.params) {
		want := "no arguments"
		switch most := len(f.params); {
		case most == 1 && required == 1:
			want = "one argument"
		case most == 1:
			want = "at most one argument"
		case most == 2:
			want = "one or two arguments"
		}
		return &fault{f.at, SeverityError, fmt.Sprintf("filter %q takes %s", f.name, want), "write " + f.example()}
	}
	for i, a := range f.args {
		switch p := f.params[i]; {
		case p.text && !a.isText:
			return a.fault("write "+f.example(), "filter %q takes a text here, not %d", f.name, a.number)
		case p.text:
		case a.isText:
			return a.fault("write "+f.example(), "filter %q takes a number here, not %q", f.name, a.text)
		case a.number < 1 || a.number > p.max:
			return a.fault("", "filter %q takes a number from 1 to %d, not %d", f.name, p.max, a.number)
		}
	}
	return nil
}

// checkDefault puts the text of a default through what follows it, since every row whose column is NULL will.
func checkDefault(fs []*filter) *fault {
	for i, f := range fs {
		if !f.isDefault() {
			continue
		}
		rest := fs[i+1:]
		if n := slices.IndexFunc(rest, func(g *filter) bool { return g.filterType == filterElements }); n >= 0 {
			rest = rest[:n]
		}
		var buf [2][]byte
		out, _, _, trouble := through(&buf, nil, textValue(f.args[0].text), rest)
		if trouble != "" {
			return f.args[0].fault("", "%q cannot go on from default: %s", f.args[0].text, trouble)
		}
		for _, c := range out {
			if unfit(c) && len(rest) == len(fs)-i-1 {
				return f.args[0].fault("put urlencode behind it", "memcached cannot hold a key with %s", nameOf(c))
			}
		}
	}
	return nil
}
