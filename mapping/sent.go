package mapping

import (
	"bytes"

	"invalidator/cdc"
)

// sentPrefix marks a logical message whose content is a key.
const sentPrefix = "cache"

const (
	textOfMessage    = "a logical message"
	detailNobodyPool = "the key's pool is not one of any file's"
	detailNoContent  = "the message was too large to be sent whole"
)

// unclaimed is where a message is skipped that is no key of anybody.
var unclaimed = &compiled{Template: &Template{Text: textOfMessage, Action: ActionDelete}}

// messageTemplates are what keys in logical messages come under: one for each pool of the file, underivable ones too.
func (f *File) messageTemplates() map[string]*Template {
	all := make(map[string]*Template, len(f.claims))
	for pool, n := range f.claims {
		all[pool] = &Template{Text: textOfMessage, Pool: pool, Team: f.Team, Action: ActionDelete, Base64: f.Base64Keys, File: f.Name, Line: n.Line, Col: n.Column}
	}
	return all
}

// perPool are what keys of a raw template come under: one for each pool of the file, underivable ones too, since here a row does
// give their keys.
func (t *Template) perPool(pools []string) map[string]*Template {
	all := make(map[string]*Template, len(pools))
	for _, pool := range pools {
		one := *t
		one.Pool, one.origin = pool, t
		all[pool] = &one
	}
	return all
}

// poolOf is the first segment of a key.
func poolOf(key []byte) []byte {
	pool, _, _ := bytes.Cut(key, []byte(":"))
	return pool
}

// message takes the key that a writer sent in its own transaction.
func (w *writer) message(s *Set, c *cdc.RowChange) {
	if c.Prefix != sentPrefix {
		return
	}
	if len(c.Content) == 0 {
		w.skip(unclaimed, "", SkipAbsent, "", detailNoContent)
		return
	}
	t := s.messages[string(poolOf(c.Content))]
	if t == nil {
		w.skip(unclaimed, "", SkipPool, "", detailNobodyPool)
		return
	}
	if detail := unfitKey(c.Content, t); detail != "" {
		w.skip(&compiled{Template: t}, "", SkipBadKey, "", detail)
		return
	}
	start := len(w.r.arena)
	w.add(t, append(w.r.arena, c.Content...), start)
}
