package mapping

import (
	"strings"
	"unicode/utf8"
	"unsafe"

	"invalidator/cdc"
)

// listing is room for the lists of one template and image, used again for the next. A view of the arena stays what it was until
// reset, also where the arena had to grow: then it lies in its predecessor.
type listing struct {
	arena  []byte
	values []cdc.Value // the elements of one list
	texts  []string    // of all parts
	lists  [][]string  // by part
}

// reset begins with a template of n parts.
func (l *listing) reset(n int) {
	l.arena, l.texts = l.arena[:0], l.texts[:0]
	if cap(l.lists) < n {
		l.lists = make([][]string, n)
	}
	l.lists = l.lists[:n]
	clear(l.lists)
}

// since is what was written to the arena from a place on.
func (l *listing) since(start int) string {
	b := l.arena[start:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// elements takes a list apart: an array as Postgres or JSON writes it, or a text whose elements stand apart by the filter's
// argument. An empty list has none. What it cannot take gives a detail, beside the elements that it could. The list is good until
// the next call.
func (l *listing) elements(s string, f *filter) (list []cdc.Value, detail string) {
	l.values = l.values[:0]
	switch {
	case len(f.args) > 0:
		detail = l.split(s, f.args[0].text)
	case strings.HasPrefix(s, "["):
		if _, array, ok := strings.Cut(s, "]={"); ok && isBounds(s[:len(s)-len(array)-len("={")]) {
			detail = l.array(s[len(s)-len(array)-len("{"):])
		} else {
			detail = l.json(s)
		}
	case strings.HasPrefix(s, "{"):
		detail = l.array(s)
	default:
		detail = detailNoList
	}
	if len(l.values) == 0 {
		return nil, detail
	}
	return l.values, detail
}

// isBounds reports whether s is what Postgres writes before an array that does not begin at 1: [0:2][-1:1].
func isBounds(s string) bool { return strings.Trim(s, "[]:-0123456789") == "" }

// fail takes back what was read of a list.
func (l *listing) fail(detail string) string {
	l.values = l.values[:0]
	return detail
}

func (l *listing) split(s, separator string) (detail string) {
	if s == "" {
		return ""
	}
	if strings.Count(s, separator) >= maxElements {
		return detailElements
	}
	for more := true; more; {
		var e string
		e, s, more = strings.Cut(s, separator)
		l.values = append(l.values, textValue(e))
	}
	return ""
}

func (l *listing) json(s string) (detail string) {
	if !utf8.ValidString(s) {
		return detailDoc
	}
	d := document{b: unsafe.Slice(unsafe.StringData(s), len(s))}
	n := 0
	for more := d.take('[') && !d.take(']'); more && !d.bad; n++ {
		d.space()
		from := d.i
		if d.skip(1); d.bad {
			break
		}
		if n < maxElements {
			if said := l.jsonElement(d.b[from:d.i]); said != "" {
				detail = said
			}
		}
		if more = d.take(','); !more {
			d.bad = !d.take(']')
		}
	}
	switch d.space(); {
	case d.bad || d.i < len(s):
		return l.fail(detailDoc)
	case n > maxElements:
		return l.fail(detailElements)
	}
	return detail
}

func (l *listing) jsonElement(raw []byte) (detail string) {
	start := len(l.arena)
	text, kind, trouble := appendJSON(l.arena, raw)
	switch {
	case kind == cdc.JSON:
		return detailNested
	case trouble != "":
		return trouble
	}
	l.arena = text
	l.values = append(l.values, cdc.Value{Kind: kind, S: l.since(start)})
	return ""
}

// array reads {a,"b \"c\"",NULL,{d}}: of an array of several dimensions the elements of all.
func (l *listing) array(s string) (detail string) {
	depth := 0
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '{':
			depth++
			i++
		case c == '}':
			if depth--; depth < 0 {
				return l.fail(detailNoList)
			}
			i++
		case depth == 0:
			return l.fail(detailNoList)
		case c == ',':
			i++
		default:
			v, n := l.arrayElement(s[i:])
			if n == 0 {
				return l.fail(detailNoList)
			}
			if l.values = append(l.values, v); len(l.values) > maxElements {
				return l.fail(detailElements)
			}
			i += n
		}
	}
	if depth != 0 {
		return l.fail(detailNoList)
	}
	return ""
}

// arrayElement reads one element, quoted or not, and says how long it is; 0 where its quote does not end.
func (l *listing) arrayElement(s string) (v cdc.Value, n int) {
	start := len(l.arena)
	quoted := s[0] == '"'
	if quoted {
		n = 1
	}
	for ; n < len(s); n++ {
		switch c := s[n]; {
		case c == '\\' && n+1 < len(s):
			n++
			l.arena = append(l.arena, s[n])
		case quoted && c == '"':
			return textValue(l.since(start)), n + 1
		case !quoted && (c == ',' || c == '}' || c == '{'):
			if strings.EqualFold(s[:n], "NULL") {
				return cdc.Value{Kind: cdc.Null}, n
			}
			return textValue(l.since(start)), n
		default:
			l.arena = append(l.arena, c)
		}
	}
	return v, 0
}
