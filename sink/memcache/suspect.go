package memcache

import (
	"slices"
	"strings"
	"time"
)

// A key that a node answers with SERVER_ERROR again and again, while it deletes others, is refused: it would take the node off the live path
// for ever, and its deletes with it. memcached has no such answer that is about a key it is to delete; a proxy may.
const (
	refuseAfter  = 30 * time.Second // since its first such answer. What a restart mends must not be refused: the delete would be lost
	refuseTimes  = 10               // answers at least, between any two of which the node has deleted another key
	maxSuspects  = 4                // keys. Where more fail it is the node's trouble, and for refuseAfter none is refused
	forgetsAfter = time.Hour        // a key that was refused is refused again at once, if it has not been deleted in this time
)

// suspects are the keys that a node answers with such an error. Its zero value has none.
type suspects struct {
	list   []suspect
	others uint64    // deletes that were carried out
	many   time.Time // when there were last too many
}

type suspect struct {
	key           string
	first, latest time.Time // answers
	times         int       // how many counted
	others        uint64    // as it was then
	refused       bool
}

// succeeded notes what was deleted. It is called for each batch.
func (s *suspects) succeeded(done []entry) {
	s.others += uint64(len(done))
	if len(s.list) == 0 {
		return
	}
	for i := range done {
		s.list = slices.DeleteFunc(s.list, func(p suspect) bool { return p.key == done[i].key })
	}
}

// failed notes an answer to a delete of key alone, and says whether the key is to be refused for it, and whether it is for the first time.
func (s *suspects) failed(key, answer string, now time.Time) (refuse, first bool) {
	if why, ok := strings.CutPrefix(answer, "SERVER_ERROR"); !ok || isNodesTrouble(why) {
		return false, false
	}
	s.list = slices.DeleteFunc(s.list, func(p suspect) bool { return now.Sub(p.latest) >= forgetsAfter })
	i := slices.IndexFunc(s.list, func(p suspect) bool { return p.key == key })
	switch {
	case i < 0 && len(s.list) == maxSuspects:
		s.list, s.many = nil, now
		return false, false
	case now.Sub(s.many) < refuseAfter:
		return false, false
	case i < 0:
		s.list = append(s.list, suspect{key: key, first: now, latest: now, others: s.others})
		return false, false
	}
	p := &s.list[i]
	p.latest = now
	if s.others > p.others {
		p.times, p.others = p.times+1, s.others
	}
	if !p.refused && p.times >= refuseTimes && now.Sub(p.first) >= refuseAfter {
		p.refused, first = true, true
	}
	return p.refused, first
}

// isNodesTrouble says whether an error tells that something is missing that any key may need: memory, in memcached's own words, or, in those of
// proxies, a server behind them.
func isNodesTrouble(why string) bool {
	why = strings.ToLower(why)
	return slices.ContainsFunc([]string{"memory", "backend", "server", "connection", "host", "network", "pipe", "timed out", "timeout",
		"unavailable", "unreachable", "shutting down", "temporar", "busy"}, func(word string) bool { return strings.Contains(why, word) })
}

// refuses says whether a key, whose delete the node answered alone with that line, is to be refused, and whether it is for the first time.
func (n *node) refuses(key, line string) (refuse, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.suspects.failed(key, line, time.Now())
}
