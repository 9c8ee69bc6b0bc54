package mapping

import (
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"invalidator/cdc"
)

// maxVariants bounds the keys that one template gives for one image by its each lists.
const maxVariants = 256

// eachList is a placeholder as the file has it.
type eachList struct {
	Each
	name   *yaml.Node
	values []*yaml.Node
}

func (r *fileReader) each(n *yaml.Node, m *Mapping) (lists []eachList) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.errorf(n, "write each: {locale: [en, de]}", "each must be names with lists, not %s", describe(n))
		return nil
	}
	product := 1
	r.pairs(n, func(key, value *yaml.Node) {
		l := eachList{Each: Each{Name: key.Value}, name: key}
		for _, v := range r.list(value, "each "+key.Value, false) {
			text, ok := v.Value, v.Kind == yaml.ScalarNode && v.Tag == "!!int" && integer.MatchString(v.Value)
			if !ok {
				text, ok = r.text(v, "a value of each "+key.Value)
			}
			if i := slices.Index(l.Values, text); ok && i >= 0 {
				r.errorf(v, "", "value %q is doubled: it stands in line %d already", text, l.values[i].Line)
			} else if ok {
				l.Values, l.values = append(l.Values, text), append(l.values, v)
			}
		}
		if at := m.declared[l.Name]; at != nil {
			r.errorf(key, "give it another name", "each %s is a column too, whose type stands in line %d", l.Name, at.Line)
		}
		product = min(product*max(len(l.Values), 1), maxVariants+1)
		lists = append(lists, l)
	})
	if product > maxVariants {
		r.errorf(n, "split the template", "each gives over %d keys", maxVariants)
		return nil
	}
	return lists
}

// expand writes a template out for every combination of its each lists: the last list changes fastest.
func (r *fileReader) expand(t *Template, lists []eachList) {
	t.variants = [][]part{t.parts}
	for _, l := range lists {
		t.Each = append(t.Each, l.Each)
		if !slices.ContainsFunc(t.parts, func(p part) bool { return p.column == l.Name }) {
			r.errorf(l.name, "write {"+l.Name+"} in the key", "each %s is not in the key", l.Name)
		}
		if len(l.Values) == 0 { // which is an error already
			continue
		}
		var more [][]part
		for _, parts := range t.variants {
			for i := range l.Values {
				more = append(more, r.substitute(t, parts, l, i))
			}
		}
		t.variants = more
	}
	for _, parts := range t.variants {
		r.checkLiterals(t, parts)
	}
}

// substitute puts one value for a placeholder, through its filters.
func (r *fileReader) substitute(t *Template, parts []part, l eachList, value int) []part {
	parts = slices.Clone(parts)
	for i, p := range parts {
		if p.column != l.Name {
			continue
		}
		if slices.ContainsFunc(p.filters, (*filter).isElements) {
			r.atTemplate(t, p.at, "", "each %s has one text at a time, and elements takes a list", l.Name)
			return parts
		}
		var buf [2][]byte
		text, kind, reason, detail := through(&buf, nil, textValue(l.Values[value]), p.filters)
		bad := slices.IndexFunc(text, unfit)
		switch {
		case kind == cdc.Ambiguous && reason == "":
			r.errorf(l.values[value], "", "%q has several texts here", l.Values[value])
		case reason != "":
			r.errorf(l.values[value], "", "%q cannot be rendered: %s", l.Values[value], detail)
		case bad >= 0 && !t.Base64:
			r.errorf(l.values[value], unfitHint, "memcached cannot hold a key with %s", nameOf(text[bad]))
		}
		parts[i] = part{literal: string(text)}
	}
	return parts
}

// checkLiterals looks at what is the same in every key of a variant.
func (r *fileReader) checkLiterals(t *Template, parts []part) {
	literal, end, limit := 0, "", maxKey
	for _, p := range parts {
		literal += len(p.literal)
		if strings.ContainsFunc(p.literal, func(c rune) bool { return c < utf8.RuneSelf && unfit(byte(c)) }) {
			limit = maxBase64Key
		}
		if end += p.literal; p.column != "" {
			end = ""
		}
	}
	if longest := literal + copySuffix(t.Hot); longest > limit {
		r.atTemplate(t, 0, "", "the key is never under %d bytes, and memcached takes %d", longest, limit)
	} else if len(t.Each) > 0 && endsAsCopy(end) {
		r.atTemplate(t, strings.LastIndexByte(t.Text, '{'), "key#1, key#2 … are the names of a hot key's copies", "a key ends in # and digits")
	}
}
