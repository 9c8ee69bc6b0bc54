package changelog

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// papers are what the owner of a partition keeps on the state topic. Only who has the turn touches them.
type papers struct {
	writer    string              // in the keys of all that is written in this owner's life, and of nobody else
	state     string              // key of the state to which the commit points; empty: none
	old       []string            // keys that count for nothing once our next commit is taken
	journal   map[string][]string // keys of the journal's records, by name, of every owner
	unwritten map[string][]byte   // the journal's records that no broker has acknowledged, by name
}

func newPapers() *papers {
	return &papers{writer: strings.ToLower(rand.Text()[:13]), journal: map[string][]string{}, unwritten: map[string][]byte{}}
}

// take takes in what is to be written. What could not be written the last time still is, and what could not be removed.
func (pa *papers) take(k Kept) {
	for _, name := range k.Drop {
		pa.old = append(pa.old, pa.journal[name]...)
		delete(pa.journal, name)
		delete(pa.unwritten, name)
	}
	for _, r := range k.Journal {
		pa.unwritten[r.Name] = r.Value
	}
}

// wrote notes that a record of the journal is acknowledged.
func (pa *papers) wrote(name, key string) {
	delete(pa.unwritten, name)
	pa.old = slices.DeleteFunc(pa.old, func(k string) bool { return k == key })
	if !slices.Contains(pa.journal[name], key) {
		pa.journal[name] = append(pa.journal[name], key)
	}
}

// committed notes which state the commit points to now, and returns the keys that count for nothing any more.
func (pa *papers) committed(state string) (old []string) {
	if pa.state != "" && pa.state != state {
		pa.old = append(pa.old, pa.state)
	}
	old, pa.state, pa.old = pa.old, state, nil
	return old
}

// partitionKey is the state topic's key of a partition's state. It ends in the writer's generation and in the writer's own name: a
// compacted topic keeps the last write, and a paused old owner writes late; and a static member that restarts keeps its generation.
// Without a name: as versions before had it.
func partitionKey(group string, p Partition, generation int32, writer string) string {
	parts := []string{"partition", group, p.Topic, strconv.Itoa(int(p.Number)), strconv.Itoa(int(generation))}
	if writer != "" {
		parts = append(parts, writer)
	}
	return StateKey(parts...)
}

// SplitPartitionKey is partitionKey's inverse, but for the group.
func SplitPartitionKey(key string) (p Partition, generation int32, writer string, err error) {
	parts, err := SplitStateKey(key)
	if err != nil {
		return p, 0, "", err
	}
	if len(parts) < 5 || len(parts) > 6 || parts[0] != "partition" {
		return p, 0, "", fmt.Errorf("state key %q is no partition's", key)
	}
	var numbers [2]int64
	for i, part := range parts[3:5] {
		if numbers[i], err = strconv.ParseInt(part, 10, 32); err != nil {
			return p, 0, "", fmt.Errorf("state key %q: %w", key, err)
		}
	}
	return Partition{parts[2], int32(numbers[0])}, int32(numbers[1]), strings.Join(parts[5:], ""), nil
}

// journalKey is the state topic's key of a record of a partition's journal. Offsets mean nothing in another log, hence the topic's id;
// a broker that has none gives "-".
func journalKey(group string, p Partition, topicID, writer, name string) string {
	if topicID == "" {
		topicID = noTopicID
	}
	return StateKey("journal", group, p.Topic, strconv.Itoa(int(p.Number)), topicID, writer, name)
}

const noTopicID = "-"

// place is the metadata of an offset commit: where on the state topic the partition's state lies, who wrote it, and of which
// topic the commit speaks.
type place struct {
	V          int    `json:"v"` // 1
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`             // when it was committed; a later one under the same key counts
	Generation int32  `json:"generation"`         // in the state's key
	Writer     string `json:"writer,omitempty"`   // in the state's key; versions before had none
	TopicID    string `json:"topic_id,omitempty"` // a topic that is made again has another
}

// noGeneration is where no state was written, or it is not known under which generation.
const noGeneration = -1

func (pl place) encode() string {
	b, err := json.Marshal(pl)
	if err != nil {
		panic(err) // a struct of numbers and texts
	}
	return string(b)
}

// parsePlace reads a commit's metadata. What is not ours says nothing.
func parsePlace(metadata string) place {
	p := place{Generation: noGeneration}
	if json.Unmarshal([]byte(metadata), &p) != nil || p.V != 1 {
		return place{Generation: noGeneration}
	}
	return p
}

// key is where the state lies; empty for none.
func (pl place) key(group string, p Partition) string {
	if pl.Generation == noGeneration {
		return ""
	}
	return partitionKey(group, p, pl.Generation, pl.Writer)
}

// papersOf finds what earlier owners of a partition left in s. Its error is a state that the commit names and that is not there, or
// something that cannot be read: never a fresh start.
func (g *Group) papersOf(s *State, p Partition, w *waiting) (*papers, Restored, error) {
	pa, was := newPapers(), Restored{}
	if w.unsaid {
		w.state = g.newestState(s, p)
	}
	if w.state != "" {
		e, ok := s.Get(w.state)
		if !ok {
			return nil, was, fmt.Errorf("the commit points to the state %s, which topic %s does not hold: what is still owed is not known "+
				"(was the topic removed or restored? to give the state up: stop the group's members, set its offsets anew with kafka-consumer-groups.sh --reset-offsets, and flush)",
				w.state, s.Topic)
		}
		if !json.Valid(e.Value) {
			return nil, was, s.BadRecord(w.state, e, errors.New("the state is no JSON"))
		}
		pa.state, was.State = w.state, e.Value
	}
	number := strconv.Itoa(int(p.Number))
	for k := range s.Under("partition", g.opts.Group, p.Topic, number) {
		if k != pa.state {
			pa.old = append(pa.old, k)
		}
	}
	for k, e := range s.Under("journal", g.opts.Group, p.Topic, number) {
		parts, err := SplitStateKey(k)
		if err == nil && len(parts) != 7 {
			err = fmt.Errorf("a key of %d parts", len(parts))
		}
		if err != nil {
			return nil, was, s.BadRecord(k, e, err)
		}
		id, name := parts[4], parts[6]
		if id != noTopicID && w.own.topicID != "" && id != w.own.topicID {
			pa.old = append(pa.old, k)
			continue
		}
		pa.journal[name] = append(pa.journal[name], k)
		was.Journal = append(was.Journal, JournalRecord{name, e.Value})
	}
	if g.opts.Readable != nil {
		if err := g.opts.Readable(was); err != nil {
			return nil, was, fmt.Errorf("reading the state to which the commit points (%s): %w", pa.state, err)
		}
	}
	return pa, was, nil
}

// newestState is the key of the state of the highest generation; empty: there is none. It stands in where somebody set a commit by hand: a
// debt too many is harmless.
func (g *Group) newestState(s *State, p Partition) (key string) {
	highest := int32(noGeneration)
	for k := range s.Under("partition", g.opts.Group, p.Topic, strconv.Itoa(int(p.Number))) {
		if _, n, _, err := SplitPartitionKey(k); err == nil && n >= highest {
			key, highest = k, n
		}
	}
	return key
}

// names are the unwritten records of the journal, in order.
func (pa *papers) names() []string { return slices.Sorted(maps.Keys(pa.unwritten)) }
