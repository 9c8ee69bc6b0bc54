package mapping

import (
	"slices"
	"strings"

	"invalidator/cdc"
)

const (
	// maxCandidates bounds the texts that the columns of one template and image leave open, taken together.
	maxCandidates = 16
	// maxElements bounds the elements of one value: a row that lists more feeds no sensible number of keys.
	maxElements = 1000
	// maxImageKeys bounds the keys of one template and image.
	maxImageKeys = 4096
)

// choice is a column whose text is one of several, and the one that is being rendered.
type choice struct {
	at    int
	texts []string
	text  string
}

// several renders t from row where it may give any number of keys: the product of what its columns leave open, of its
// variants, and of the elements of its lists.
func (w *writer) several(t *compiled, image Image, row, behind cdc.Row) {
	var open []choice
	combinations := 1
	for i, at := range t.at {
		if at == noColumn {
			continue
		}
		v := value(row, behind, at)
		if v.Kind == cdc.Ambiguous && !slices.ContainsFunc(open, func(c choice) bool { return c.at == at }) {
			open = append(open, choice{at: at, texts: v.Candidates()})
			combinations *= len(open[len(open)-1].texts)
		}
		if combinations > maxCandidates {
			w.skip(t, image, SkipUnclear, t.variants[0][i].column, detailCandidates)
			return
		}
	}
	for n := range combinations {
		for i := range open {
			open[i].text = open[i].texts[n%len(open[i].texts)]
			n /= len(open[i].texts)
		}
		w.product(t, image, row, behind, open)
	}
}

// product renders a key for every way through the variants and the lists, with the texts chosen where a column leaves several
// open.
func (w *writer) product(t *compiled, image Image, row, behind cdc.Row, open []choice) {
	l := &w.r.list
	l.reset(len(t.at))
	lists := l.lists
	total := len(t.variants)
	for i, at := range t.at {
		if at == noColumn {
			continue
		}
		v := value(row, behind, at)
		for _, c := range open {
			if c.at == at {
				v = textValue(c.text)
			}
		}
		p := &t.variants[0][i]
		lists[i] = w.expand(t, image, p, v)
		if total *= len(lists[i]); total == 0 {
			return
		}
		if total > maxImageKeys {
			w.skip(t, image, SkipMany, p.column, detailMany)
			return
		}
	}
	for n := range total {
		parts := t.variants[n%len(t.variants)]
		n /= len(t.variants)
		start := len(w.r.arena)
		key := w.r.arena
		for i := range parts {
			if t.at[i] == noColumn {
				key = append(key, parts[i].literal...)
				continue
			}
			key = append(key, lists[i][n%len(lists[i])]...)
			n /= len(lists[i])
		}
		w.finish(t, image, key, start)
	}
}

// expand is every text that a part gives of a value, good until the next template. What it does not give is skipped.
func (w *writer) expand(t *compiled, image Image, p *part, v cdc.Value) []string {
	l := &w.r.list
	start := len(l.texts)
	split := slices.IndexFunc(p.filters, (*filter).isElements)
	if split < 0 {
		w.take(t, image, p, v, p.filters, through)
		return l.texts[start:]
	}
	w.take(t, image, p, v, p.filters[:split], steps)
	end := len(l.texts)
	for _, s := range l.texts[start:end] {
		list, detail := l.elements(s, p.filters[split])
		switch {
		case detail == detailElements:
			w.skip(t, image, SkipMany, p.column, detail)
			return nil
		case detail != "":
			w.skip(t, image, SkipType, p.column, detail)
		}
		for _, e := range list {
			w.take(t, image, p, e, p.filters[split+1:], through)
		}
	}
	return l.texts[end:]
}

// take adds the texts that filters make of a value to those of the listing.
func (w *writer) take(t *compiled, image Image, p *part, v cdc.Value, fs []*filter, render pipe) {
	l := &w.r.list
	start := len(l.arena)
	out, kind, reason, detail := render(&w.r.value, l.arena, v, fs)
	switch l.arena = out; {
	case reason != "":
		w.skip(t, image, reason, p.column, detail)
	case kind == cdc.Ambiguous:
		l.texts = append(l.texts, strings.Split(string(out[start:]), separator)...)
	default:
		l.texts = append(l.texts, l.since(start))
	}
}

func (f *filter) isElements() bool { return f.filterType == filterElements }
