package mapping

import (
	"fmt"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// How long a copy that is marked stale still has. The bounds are whole seconds, as memcached's protocol has them.
const (
	minStaleFor     = time.Second
	maxStaleFor     = time.Minute
	defaultStaleFor = 30 * time.Second
)

// keyEntry is one entry of keys, as the file has it.
type keyEntry struct {
	key, raw, each, when, action, staleFor *yaml.Node
	hot                                    int
	shadow                                 bool
}

// key reads one entry of keys: a text, or fields.
func (r *fileReader) key(n *yaml.Node, m *Mapping) {
	e := keyEntry{key: n}
	if n.Kind != yaml.ScalarNode {
		e.key = nil
		r.object(n, "a key", []field{
			{name: "key", read: func(n *yaml.Node) { e.key = n }},
			{name: "raw", read: func(n *yaml.Node) { e.raw = n }},
			{name: "each", read: func(n *yaml.Node) { e.each = n }},
			{name: "when", read: func(n *yaml.Node) { e.when = n }},
			{name: "action", read: func(n *yaml.Node) { e.action = n }},
			{name: "stale_for", read: func(n *yaml.Node) { e.staleFor = n }},
			{name: "hot", read: func(n *yaml.Node) { e.hot = r.number(n, "hot", maxHot) }},
			{name: "shadow", read: func(n *yaml.Node) { e.shadow = r.flag(n, "shadow") }},
		})
		switch {
		case n.Kind != yaml.MappingNode:
			return
		case e.key == nil && e.raw == nil:
			r.errorf(n, "", "a key has no field %q", "key")
			return
		case e.key != nil && e.raw != nil:
			r.errorf(e.raw, "", "key and raw exclude each other")
			return
		}
	}
	r.template(e, m)
}

func (r *fileReader) template(e keyEntry, m *Mapping) {
	text := e.key
	if e.raw != nil {
		text = e.raw
	}
	t := &Template{Team: r.f.Team, Mapping: m.Name, OnTruncate: m.OnTruncate, Hot: e.hot, Shadow: e.shadow, Raw: e.raw != nil, Base64: r.f.Base64Keys, File: r.file, Line: text.Line, Col: text.Column, node: text}
	r.when(e.when, t)
	r.action(e, t)
	var lists []eachList
	if e.each != nil {
		lists = r.each(e.each, m)
	}
	s, ok := r.text(text, "a key")
	if !ok {
		return
	}
	parts, faults := parseTemplate(s, t.Base64)
	for _, f := range faults {
		line, col := r.within(text, f.at)
		r.add(f.severity, line, col, f.hint, f.what)
	}
	if parts == nil {
		return
	}
	t.Text, t.parts = s, parts
	if t.Raw {
		r.raw(e, t)
	} else {
		r.pool(text, t)
	}
	r.expand(t, lists)
	if i := slices.IndexFunc(m.Templates, func(o *Template) bool { return o.Text == s && o.When == t.When }); i >= 0 {
		r.errorf(text, "", "key %q is doubled: it stands in line %d already", s, m.Templates[i].Line)
	}
	m.Templates = append(m.Templates, t)
}

func (r *fileReader) pool(n *yaml.Node, t *Template) {
	name, ok := pool(t.parts)
	t.Pool = name
	switch {
	case !ok:
		r.errorf(n, "a key begins with its pool: user:{id}", "the first segment of %q is not a literal pool", t.Text)
	case slices.Contains(r.f.Underivable, name):
		r.errorf(n, "move it to pools", "pool %q is underivable, and here a row gives a key of it", name)
	case r.f.claims[name] == nil:
		hint := didYouMean(name, append(slices.Clone(r.f.Pools), r.f.Underivable...))
		if hint == "" {
			hint = "name it in pools"
		}
		r.errorf(n, hint, "pool %q is not one of this file's", name)
	}
}

// raw checks a template whose column holds whole keys.
func (r *fileReader) raw(e keyEntry, t *Template) {
	if len(t.parts) != 1 || t.parts[0].column == "" {
		r.errorf(e.raw, `write raw: "{key}", or a key: that begins with its pool`, "raw must be one column, which holds whole keys")
	}
	if e.each != nil {
		r.errorf(e.each, "", "raw and each exclude each other")
	}
	t.sent = t.perPool(slices.Concat(r.f.Pools, r.f.Underivable))
}

// when reads a condition.
func (r *fileReader) when(n *yaml.Node, t *Template) {
	if n == nil {
		return
	}
	s, ok := r.text(n, "when")
	if !ok {
		return
	}
	c, bad := parseCondition(s)
	if bad != nil {
		line, col := r.within(n, bad.at)
		r.add(SeverityError, line, col, bad.hint, bad.what)
		return
	}
	t.When, t.condition = s, c
}

// action reads what is done with a key's copies.
func (r *fileReader) action(e keyEntry, t *Template) {
	t.Action = ActionDelete
	if e.action != nil {
		actions := []string{string(ActionDelete), string(ActionStale), string(ActionRefresh)}
		s, ok := r.text(e.action, "action")
		if ok && !slices.Contains(actions, s) {
			r.errorf(e.action, didYouMean(s, actions), "action must be delete, stale or refresh, not %q", s)
		}
		t.Action = Action(s)
	}
	if t.Action == ActionStale {
		t.StaleFor = defaultStaleFor
	}
	if e.staleFor != nil {
		if t.Action == ActionDelete {
			r.errorf(e.staleFor, "write action: stale, or refresh", "stale_for is for copies that are marked stale, and these are deleted")
		}
		t.StaleFor = r.seconds(e.staleFor, "stale_for")
	}
	if t.StaleFor > 0 && r.f.Readers != ReadersMeta {
		at := e.action
		if e.staleFor != nil {
			at = e.staleFor
		}
		r.warnf(at, "write readers: meta if every reader of these pools asks by mg and heeds its flags", "the file's readers are classic: its keys are deleted, not marked stale")
		t.StaleFor = 0
	}
}

// seconds reads for how long a copy is marked stale.
func (r *reader) seconds(n *yaml.Node, what string) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < minStaleFor || d > maxStaleFor || d%time.Second != 0 {
		r.errorf(n, "write 30s", "%s must be whole seconds from 1s to 60s, not %s", what, describe(n))
		return 0
	}
	return d
}

// flag reads true or false.
func (r *reader) flag(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		r.errorf(n, "write true or false", "%s must be a boolean, not %s", what, describe(n))
	}
	return n.Value == "true"
}

// atTemplate reports an error at a byte of a template's text.
func (r *fileReader) atTemplate(t *Template, at int, hint, format string, args ...any) {
	line, col := r.within(t.node, at)
	r.add(SeverityError, line, col, hint, fmt.Sprintf(format, args...))
}
