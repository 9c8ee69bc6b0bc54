package postgres

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// publicationComment marks a publication of our own making. Only such a one is ever altered. What we remember stands on the
// comment's second line.
const publicationComment = "made by invalidator, which adds tables of its include list to it"

// memory is which relations stood behind the names of the tables that a Feeder is fed with, when it looked last. The log tells
// neither DROP nor RENAME nor DETACH: only by what was there before can they be seen. A publication of our own carries it in
// its comment, so that it outlives us; of another's a Run has its own.
type memory struct {
	Tables map[string]map[string]known `json:"tables"` // by schema and table; nil: nothing was ever looked at
}

// memories are those of all Feeders that share a publication, by slot: each is fed with tables of its own.
type memories map[string]*memory

// known is a relation and how it comes to be published.
type known struct {
	OID    uint32 `json:"oid"`
	Root   uint32 `json:"root,omitempty"`   // the partitioned table at the top, of a partition
	Member uint32 `json:"member,omitempty"` // the row of pg_publication_rel, of a table that is listed by name
	Links  string `json:"links,omitempty"`  // the transactions that attached a partition, and what it is in, to its root
	Leaves string `json:"leaves,omitempty"` // the partitions, where they are published under the name of the whole
}

func parseMemories(comment string) memories {
	_, text, _ := strings.Cut(comment, "\n")
	var all memories
	if json.Unmarshal([]byte(text), &all) != nil || all == nil {
		all = memories{} // an older version's comment, or somebody's edit: as if nothing was ever looked at
	}
	return all
}

// of gives the memory of a slot's Feeder.
func (all memories) of(slot string) *memory {
	if all[slot] == nil {
		all[slot] = &memory{}
	}
	return all[slot]
}

// comment is the text of a publication's comment that holds them.
func (all memories) comment() string {
	text, err := json.Marshal(all)
	if err != nil { // maps of strings and numbers: never
		return publicationComment
	}
	return publicationComment + "\n" + string(text)
}

func (m *memory) get(t tableName) (known, bool) {
	k, ok := m.Tables[t[0]][t[1]]
	return k, ok
}

func (m *memory) put(t tableName, k known) {
	if m.Tables == nil {
		m.Tables = map[string]map[string]known{}
	}
	if m.Tables[t[0]] == nil {
		m.Tables[t[0]] = map[string]known{}
	}
	m.Tables[t[0]][t[1]] = k
}

// restore makes m know of a name what before did.
func (m *memory) restore(t tableName, before *memory) {
	if k, ok := before.get(t); ok {
		m.put(t, k)
	} else {
		m.forget(t)
	}
}

func (m *memory) forget(t tableName) { delete(m.Tables[t[0]], t[1]) }

// holds reports whether this very relation was published before, under whatever name.
func (m *memory) holds(k known) bool {
	for _, tables := range m.Tables {
		for _, was := range tables {
			if was == k {
				return true
			}
		}
	}
	return false
}

// names lists what m knows, in order.
func (m *memory) names() []tableName {
	var all []tableName
	for schema, tables := range m.Tables {
		for table := range tables {
			all = append(all, tableName{schema, table})
		}
	}
	slices.SortFunc(all, func(a, b tableName) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// differences is what happened to the tables of a publication since m was written.
type differences struct {
	gone   []tableName // another relation, or none, stands behind the name: every row may be gone
	joined []tableInfo // published now, and not all the time since it was made
}

// compare brings m up to date with tables, which match chooses, and says what changed. The first look at a publication finds
// no difference.
func (m *memory) compare(tables []tableInfo, match func(tableName) bool) differences {
	first := m.Tables == nil
	before := m.clone()
	if first {
		m.Tables = map[string]map[string]known{}
	}
	d := m.take(tables, before, first)
	current := make(map[tableName]tableInfo, len(tables))
	for _, t := range tables {
		current[t.name()] = t
	}
	for _, name := range before.names() {
		t, ok := current[name]
		if ok && (t.Listed || t.Published) {
			continue
		}
		m.forget(name)
		if !match(name) { // not included any more: should it be again, it joins anew
			continue
		}
		was, _ := before.get(name)
		if !ok || t.OID != was.OID || t.Root != was.Root {
			d.gone = append(d.gone, name)
		}
	}
	return d
}

// take brings m up to date with some of the tables; before is m as it was.
func (m *memory) take(tables []tableInfo, before *memory, first bool) differences {
	var d differences
	for _, t := range tables {
		if !t.Listed && !t.Published {
			continue
		}
		now := t.known()
		m.put(t.name(), now)
		was, ok := before.get(t.name())
		if first || ok && was == now {
			continue
		}
		held := before.holds(now)
		renamed := !ok && held // to a name under which another may have stood that had left the publication
		if renamed || ok && (was.OID != now.OID || was.Root != now.Root || was.Links != now.Links || regrouped(was.Leaves, t)) {
			d.gone = append(d.gone, t.name())
		}
		listed := ok && was.OID == now.OID && was.Root == now.Root && was.Links == now.Links && was.Member == now.Member ||
			ok && was.OID == now.OID && now.Member != 0 && was.Member == now.Member
		if !listed && !held && !bornInto(t, tables, before) {
			d.joined = append(d.joined, t)
		}
	}
	return d
}

// regrouped reports whether a partition that t had has left it, or one has joined it with rows that it may have had before.
func regrouped(was string, t tableInfo) bool {
	if was == "" {
		return false
	}
	now := strings.Split(t.known().Leaves, ",")
	for _, oid := range strings.Split(was, ",") {
		if !slices.Contains(now, oid) {
			return true
		}
	}
	for i, oid := range t.LeafOIDs {
		if !t.LeafBorn[i] && !slices.Contains(strings.Split(was, ","), strconv.FormatUint(uint64(oid), 10)) {
			return true
		}
	}
	return false
}

// bornInto reports whether t was made as a partition of a table that had been published already.
func bornInto(t tableInfo, tables []tableInfo, before *memory) bool {
	if !t.Born {
		return false
	}
	for _, root := range tables {
		if root.OID == t.Root {
			was, ok := before.get(root.name())
			return ok && was == root.known()
		}
	}
	return false
}

func (m *memory) clone() *memory {
	c := &memory{}
	if m.Tables != nil {
		c.Tables = map[string]map[string]known{}
	}
	for _, name := range m.names() {
		k, _ := m.get(name)
		c.put(name, k)
	}
	return c
}
