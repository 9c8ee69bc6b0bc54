package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"invalidator/cdc"
)

// The marker is source.invalidator: {"v":1,"ordinal":n,"slim":true,"types":{…},"before_types":{…}}. types names the kind
// of every column whose JSON form does not say it; before_types those that differ in the before image.

// markerVersion is raised when a reader of an older version would read a value wrongly.
const markerVersion = "1"

// kindNames are the marker's words. Text and Integer need none; plain undoes types in before_types.
var kindNames = [...]string{
	cdc.Bool: "bool", cdc.Integer: "integer", cdc.Decimal: "decimal", cdc.Float: "float", cdc.Text: "plain", cdc.Bytes: "bytes",
	cdc.Bytea: "bytea", cdc.JSON: "json", cdc.Unclear: "unclear", cdc.Ambiguous: "ambiguous",
}

// whySep stands between the word unclear and Value.Why.
const whySep = ": "

// kindWord is the marker's word for a value, and whether the value has one to say.
func kindWord(v cdc.Value) (word, why string, ok bool) {
	switch v.Kind {
	case cdc.Absent, cdc.Null:
		return "", "", false
	case cdc.Integer:
		if isJSONInt(v.S) {
			return kindNames[cdc.Text], "", true
		}
	case cdc.Unclear:
		return kindNames[v.Kind], v.Why, true
	}
	return kindNames[v.Kind], "", true
}

// marker appends what follows the ordinal in the marker, up to its end.
func (w *writer) marker(b []byte) ([]byte, error) {
	if w.c.Slim || w.part != whole {
		b = append(b, `,"slim":true`...)
	}
	if w.c.Columns == nil || w.c.Before == nil && w.c.After == nil {
		return append(b, '}'), nil
	}
	first, second := w.c.After, w.c.Before
	if first == nil {
		first, second = second, nil
	}
	b, err := w.types(b, `,"types":{`, first, second, false)
	if err == nil && second != nil {
		b, err = w.types(b, `,"before_types":{`, second, first, true)
	}
	return append(b, '}'), err
}

// types appends the words of r's values; of other's where r has none. With diff it is the words of r alone, where other
// has another.
func (w *writer) types(b []byte, open string, r, other cdc.Row, diff bool) ([]byte, error) {
	start := len(b)
	b = append(b, open...)
	empty := len(b)
	for i := range w.c.Columns.List {
		col := &w.c.Columns.List[i]
		if !w.writes(col) {
			continue
		}
		word, why, ok := kindWord(r[i])
		otherWord, otherWhy, otherOK := kindWord(imageValue(other, i))
		switch {
		case diff && (!ok || !otherOK || word == otherWord && why == otherWhy):
			continue
		case !diff && !ok:
			word, why, ok = otherWord, otherWhy, otherOK
		}
		if !ok || !diff && word == kindNames[cdc.Text] {
			continue
		}
		if why != "" {
			word += whySep + why
		}
		var err error
		if b, err = appendString(b, col.Name); err == nil {
			b, err = appendString(append(b, ':'), word)
		}
		if err != nil {
			return b, w.error(col.Name, err)
		}
		b = append(b, ',')
	}
	if len(b) == empty {
		return b[:start], nil
	}
	b[len(b)-1] = '}'
	return b, nil
}

// marker is a marker that was read.
type marker struct{ at [markMembers][]byte }

const (
	markVersion = iota
	markOrdinal
	markSlim
	markTypes
	markBeforeTypes
	markMembers
)

func markerPlace(name []byte) int {
	switch string(name) {
	case "v":
		return markVersion
	case "ordinal":
		return markOrdinal
	case "slim":
		return markSlim
	case "types":
		return markTypes
	case "before_types":
		return markBeforeTypes
	}
	return nowhere
}

// parse reads the marker into m, and what it says of the change into c. A nil raw, of a record that is not ours, is nothing.
func (m *marker) parse(raw []byte, c *cdc.RowChange, h *hints) error {
	if raw == nil {
		return nil
	}
	in := members{s: scanner{b: raw}}
	for {
		name, place, ok, err := in.hinted(h)
		if err == nil && !ok {
			break
		}
		var value []byte
		if err == nil {
			if place == unseen {
				place = markerPlace(name)
				in.learn(h, name, place)
			}
			value, err = in.s.raw()
		}
		if err == nil && place >= 0 {
			err = put(&m.at[place], name, value)
		}
		if err != nil {
			return fmt.Errorf("reading source.invalidator: %w", err)
		}
	}
	if string(m.at[markVersion]) != markerVersion {
		return fmt.Errorf("source.invalidator has version %.20q, this program reads %s: it was written by a newer one", m.at[markVersion], markerVersion)
	}
	c.Ordinal = intOf(m.at[markOrdinal])
	c.Slim = string(m.at[markSlim]) == "true"
	return nil
}

// ownKind is what the marker says of a column.
type ownKind struct {
	kind cdc.Kind // Absent: it says nothing
	why  string
}

// kinds gives one ownKind for each of cols, in room if there is enough.
func (m *marker) kinds(room []ownKind, cols *cdc.Columns, before bool) ([]ownKind, error) {
	k := slices.Grow(room[:0], len(cols.List))[:len(cols.List)]
	clear(k)
	if err := readKinds(k, cols, m.at[markTypes]); err != nil {
		return nil, fmt.Errorf("reading source.invalidator.types: %w", err)
	}
	if before {
		if err := readKinds(k, cols, m.at[markBeforeTypes]); err != nil {
			return nil, fmt.Errorf("reading source.invalidator.before_types: %w", err)
		}
	}
	return k, nil
}

func readKinds(k []ownKind, cols *cdc.Columns, types []byte) error {
	if types == nil {
		return nil
	}
	m := members{s: scanner{b: types}}
	for {
		name, value, ok, err := m.next()
		if err != nil || !ok {
			return err
		}
		i := cols.Index(string(name))
		if i < 0 {
			continue
		}
		if k[i], ok = parseKind(value); !ok {
			return fmt.Errorf("column %q has kind %.40s, which is not known", name, value)
		}
	}
}

func parseKind(raw []byte) (ownKind, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return ownKind{}, false
	}
	word := raw[1 : len(raw)-1]
	for kind, name := range kindNames {
		if name != "" && string(word) == name {
			return ownKind{kind: cdc.Kind(kind)}, true
		}
	}
	text, ok := unquote(raw)
	why, ok2 := bytes.CutPrefix(text, []byte(kindNames[cdc.Unclear]+whySep))
	return ownKind{cdc.Unclear, string(why)}, ok && ok2
}

// value reads a value that our feeder wrote.
func (k ownKind) value(t *texts, raw []byte, conn cdc.Connector) (cdc.Value, error) {
	switch raw[0] {
	case 'n':
		return cdc.Value{Kind: cdc.Null}, nil
	case 't', 'f':
		return cdc.Value{Kind: cdc.Bool, S: boolText(raw[0] == 't', conn)}, nil
	case '{', '[':
		return cdc.Value{}, errors.New("our own envelope holds no nested value")
	}
	kind := k.kind
	switch kind {
	case cdc.Absent, cdc.Text:
		if raw[0] != '"' && !isJSONInt(view(raw)) {
			return cdc.Value{}, errors.New("our own envelope names the kind of a number that is no integer")
		}
		if kind = cdc.Text; raw[0] != '"' {
			kind = cdc.Integer
		}
	case cdc.Bytes, cdc.Bytea, cdc.Unclear:
		b, err := t.base64(raw)
		return cdc.Value{Kind: kind, S: view(b), Why: k.why}, err
	}
	if raw[0] != '"' {
		return cdc.Value{Kind: kind, S: view(raw)}, nil
	}
	text, ok := t.unquote(raw)
	if !ok {
		return cdc.Value{}, errNotUTF8
	}
	return cdc.Value{Kind: kind, S: view(text)}, nil
}
