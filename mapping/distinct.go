package mapping

import "unsafe"

// distinct appends keys to a list unless they are there already.
type distinct struct {
	keys    *[]Key
	first   int             // the keys before it are another change's
	index   *map[string]int // text -> place in keys; the Result keeps its room
	indexed bool            // the list became long
}

// manyKeys is from where on an index pays.
const manyKeys = 32

// add reports whether it took the key, whose bytes must then stay as they are. The same key is taken once for each thing that is
// to be done with it; of two templates that say the same, the one with more copies stands for it, so that no copy is forgotten.
func (d *distinct) add(t *Template, key []byte) bool {
	text := unsafe.String(unsafe.SliceData(key), len(key))
	if d.indexed {
		at, ok := (*d.index)[text]
		if !ok {
			(*d.index)[text] = len(*d.keys)
			*d.keys = append(*d.keys, Key{Text: text, Template: t})
			return true
		}
		if d.stands(at, text, t) {
			return false
		}
	}
	for i := d.first; i < len(*d.keys); i++ {
		if d.stands(i, text, t) {
			return false
		}
	}
	*d.keys = append(*d.keys, Key{Text: text, Template: t})
	if !d.indexed && len(*d.keys)-d.first > manyKeys {
		d.makeIndex()
	}
	return true
}

func (d *distinct) makeIndex() {
	if d.indexed = true; *d.index == nil {
		*d.index = map[string]int{}
	}
	clear(*d.index)
	for i, k := range (*d.keys)[d.first:] {
		if _, ok := (*d.index)[k.Text]; !ok {
			(*d.index)[k.Text] = d.first + i
		}
	}
}

// stands reports whether the key at a place is this one.
func (d *distinct) stands(at int, text string, t *Template) bool {
	k := &(*d.keys)[at]
	if k.Text != text || k.Template.Action != t.Action || k.Template.StaleFor != t.StaleFor {
		return false
	}
	if t.Hot > k.Template.Hot {
		k.Template = t
	}
	return true
}
