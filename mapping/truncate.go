package mapping

import (
	"maps"
	"slices"

	"gopkg.in/yaml.v3"

	"invalidator/cdc"
)

// OnTruncate says what becomes of a mapping's pools when a table of it loses its rows and nothing says which they were.
type OnTruncate string

const (
	TruncateFlush  OnTruncate = "flush"  // the default: all keys of its pools may be stale, and are deleted bit by bit
	TruncateIgnore OnTruncate = "ignore" // they stay until they expire
)

// Emptied is a pool with keys that a truncate left stale and that no row names any more.
type Emptied struct {
	Pool     string
	Template *Template // the first that may give a key of it
}

// truncate answers a truncate of the change's tables. A key without columns is known, and deleted as by any change; of every other
// template the pools are told. A condition counts as true: what happened to the rows is not known, since a truncate also stands for
// statements that were logged as text.
func (w *writer) truncate(s *Set, c *cdc.RowChange) {
	w.truncateTable(s, c.Source, c.TableID)
	for _, id := range c.Also {
		w.truncateTable(s, c.Source, id)
	}
	w.r.Unflushed = slices.DeleteFunc(w.r.Unflushed, func(e Emptied) bool { return has(w.r.Flush, e.Pool) })
}

func (w *writer) truncateTable(s *Set, source string, id cdc.TableID) {
	p := s.Plan(source, id)
	if p == nil {
		return
	}
	for i := range p.compiled {
		t := &p.compiled[i]
		switch {
		case t.constant():
			w.image(t, Before, nil, nil)
		case t.Shadow:
		case t.OnTruncate == TruncateIgnore:
			w.r.Unflushed = addEmptied(w.r.Unflushed, t.Template)
		default:
			w.r.Flush = addEmptied(w.r.Flush, t.Template)
		}
	}
}

// addEmptied adds the pools that a template may give keys of.
func addEmptied(list []Emptied, t *Template) []Emptied {
	pools := []string{t.Pool}
	if t.Raw {
		pools = slices.Sorted(maps.Keys(t.sent))
	}
	for _, pool := range pools {
		if !has(list, pool) {
			list = append(list, Emptied{pool, t})
		}
	}
	return list
}

func has(list []Emptied, pool string) bool {
	return slices.ContainsFunc(list, func(e Emptied) bool { return e.Pool == pool })
}

// constant reports whether no row says what the template's keys are.
func (t *Template) constant() bool {
	return !slices.ContainsFunc(t.variants[0], func(p part) bool { return p.column != "" })
}

func (r *fileReader) onTruncate(n *yaml.Node) OnTruncate {
	s, ok := r.text(n, "on_truncate")
	if ok && s != string(TruncateFlush) && s != string(TruncateIgnore) {
		r.errorf(n, didYouMean(s, []string{string(TruncateFlush), string(TruncateIgnore)}), "on_truncate must be flush or ignore, not %q", s)
	}
	return OnTruncate(s)
}

// testFlush reads the pools that a test of a truncate wants flushed.
func (r *fileReader) testFlush(list *yaml.Node) (pools []string) {
	for _, n := range r.texts(list, "flush", "pool", true) {
		if r.f.claims[n.Value] == nil {
			r.errorf(n, didYouMean(n.Value, slices.Concat(r.f.Pools, r.f.Underivable)), "pool %q is not one of this file's", n.Value)
		}
		pools = append(pools, n.Value)
	}
	return pools
}

// truncates compares what becomes of a truncate.
func (d *diff) truncates(o, t *Template) {
	if o.OnTruncate == t.OnTruncate || t.constant() || t.Shadow {
		return
	}
	d.note("on_truncate: %s -> %s", o.OnTruncate, t.OnTruncate)
	if t.OnTruncate == TruncateIgnore {
		d.narrow("a truncate of its tables leaves its keys as they are until they expire")
	} else {
		d.widen("earlier truncates asked for no flush of it")
	}
}

// sweptOutboxes finds tables of keys that writers send, where sweeping the table by TRUNCATE would flush every pool of the file.
func (s *Set) sweptOutboxes() (problems []Problem) {
	for _, m := range s.mappings {
		for _, t := range m.Templates {
			if t.Raw && !t.Shadow && !m.saysTruncate {
				problems = append(problems, Problem{File: t.File, Line: t.Line, Col: t.Col, Severity: SeverityNote,
					What: "a TRUNCATE of this table flushes every pool of the file, for the keys in it may be of any",
					Hint: "write on_truncate: ignore if the table is swept so, or on_truncate: flush if it never is"})
			}
		}
	}
	return problems
}
