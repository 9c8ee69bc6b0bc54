package mapping

import (
	"bytes"
	"fmt"

	"invalidator/cdc"
)

// sentPrefix marks a logical message whose content is a key.
const sentPrefix = "cache"

// UnclaimedPool is the pool of keys on the topic of keys whose own pool no file in force claims. No file can claim one of this name. It is one for all, so that
// what is counted and owed by pool stays a closed set, whatever is sent.
const UnclaimedPool = "{unclaimed}"

const (
	textOfMessage    = "a logical message"
	textOfKey        = "a key that was sent"
	detailNobodyPool = "the key's pool is not one of any file's"
	detailNoContent  = "the message was too large to be sent whole"
	detailEmpty      = "it is empty"
)

// shownSent is how much of a key that was sent is shown where it is refused, in bytes.
const shownSent = 300

// unclaimed is where a message is skipped that is no key of anybody.
var unclaimed = &compiled{Template: &Template{Text: textOfMessage, Action: ActionDelete}}

// unclaimedKeys is what keys come under that are sent and of nobody's pool.
var unclaimedKeys = sentUnder{{Text: textOfKey, Pool: UnclaimedPool, Action: ActionDelete}}

// sentUnder are the templates of a pool for keys that a writer sent whole: the one with the most hot copies first, and behind it those with fewer, down to
// none. Where a key leaves no room for the names of its copies no client can have them, and the key itself may be there all the same.
type sentUnder []*Template

// sentTemplates are what keys that a writer sent come under: some for each pool of the file, underivable ones too. They have as many hot copies as any
// template of the pool declares, since nothing says which of them the key is of.
func (f *File) sentTemplates(text string) map[string]sentUnder {
	all := make(map[string]sentUnder, len(f.claims))
	for pool, n := range f.claims {
		most := f.mostHot(pool)
		for _, hot := range []int{most, min(most, 9), 0} { // 9 is the last of one digit
			if under := all[pool]; len(under) > 0 && hot == under[len(under)-1].Hot {
				continue
			}
			all[pool] = append(all[pool], &Template{
				Text: text, Pool: pool, Team: f.Team, Action: ActionDelete, Hot: hot, Base64: f.Base64Keys, File: f.Name, Line: n.Line, Col: n.Column,
			})
		}
	}
	return all
}

// mostHot is the greatest number of hot copies that a template of a pool declares, in shadow too.
func (f *File) mostHot(pool string) (most int) {
	for _, m := range f.Mappings {
		for _, t := range m.Templates {
			if t.Pool == pool || t.sent[pool] != nil {
				most = max(most, t.Hot)
			}
		}
	}
	return most
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
	under := s.messages[string(poolOf(c.Content))]
	if under == nil {
		w.skip(unclaimed, "", SkipPool, "", detailNobodyPool)
		return
	}
	t, detail := under.fit(c.Content)
	if detail != "" {
		w.skip(&compiled{Template: t}, "", SkipBadKey, "", detail)
		return
	}
	start := len(w.r.arena)
	w.add(t, append(w.r.arena, c.Content...), start)
}

// fit returns the first template that has room for a key and its copies; where none has, the first of all and what is wrong with the key.
func (u sentUnder) fit(key []byte) (t *Template, wrong string) {
	if len(key) == 0 {
		return u[0], detailEmpty
	}
	for _, t := range u {
		if wrong = unfitKey(key, t); wrong == "" {
			return t, ""
		}
	}
	return u[0], wrong
}

// keysUnder is what a key on the topic of keys comes under.
func (s *Set) keysUnder(key []byte) sentUnder {
	if under := s.keys[string(poolOf(key))]; under != nil {
		return under
	}
	return unclaimedKeys
}

// sentKeys takes the keys of a record of keys. What memcached cannot hold is skipped, and the others are taken; what is in nobody's pool is taken too, since
// who may write there may delete.
func (w *writer) sentKeys(s *Set, c *cdc.RowChange) {
	for _, text := range c.Keys {
		key := []byte(text)
		t, wrong := s.keysUnder(key).fit(key)
		if wrong != "" {
			w.skip(&compiled{Template: t}, "", SkipBadKey, "", fmt.Sprintf("the key %q: %s", text[:min(len(text), shownSent)], wrong))
			continue
		}
		start := len(w.r.arena)
		w.add(t, append(w.r.arena, key...), start)
	}
}

// CheckSent says what becomes of a key that is sent to the topic of keys: of which template it is (its Pool is UnclaimedPool where no file in force claims
// the key's), and why memcached cannot hold it, without the ring's key_prefix; empty where it can.
func (s *Set) CheckSent(key string) (t *Template, wrong string) {
	return s.keysUnder([]byte(key)).fit([]byte(key))
}

// PoolOf is a key's pool: its first segment.
func PoolOf(key string) string { return string(poolOf([]byte(key))) }
