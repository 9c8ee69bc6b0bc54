package stories

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"invalidator/sink"
)

// ring is a ring record, as the manager wrote it.
type ring struct {
	epoch    int64
	record   *sink.Record
	shards   map[string][]string // by id: nodes, the primary first
	previous map[string][]string // nil: there is none
	seeding  []string            // replicas that are being seeded
	now, old *sink.Topology      // of shards, of previous (nil: there is none)
}

// ringOf reads "s0=a,b s1=c,d* previous s0=a,b,c": the primary first, and with a * who is being seeded.
func ringOf(epoch int64, at time.Time, text string) (*ring, error) {
	now, before, resizing := strings.Cut(text, " previous ")
	r := &ring{epoch: epoch}
	nowJSON, shards, err := r.shardsOf(now)
	if err != nil {
		return nil, err
	}
	r.shards = shards
	head := fmt.Sprintf(`{"epoch":%d,"kind":"points160","shards":`, epoch)
	whole := head + nowJSON
	if r.now, err = topologyOf(head + nowJSON + "}"); err != nil {
		return nil, err
	}
	if resizing {
		oldJSON, previous, err := r.shardsOf(before)
		if err != nil {
			return nil, err
		}
		r.previous = previous
		if r.old, err = topologyOf(head + oldJSON + "}"); err != nil {
			return nil, err
		}
		whole += fmt.Sprintf(`,"previous":{"epoch":%d,"shards":%s}`, epoch-1, oldJSON)
	}
	t, err := topologyOf(whole + fmt.Sprintf(`,"at":%q}`, at.Format(time.RFC3339Nano)))
	if err != nil {
		return nil, err
	}
	r.record = t.Record()
	return r, nil
}

// shardsOf reads the shards of a text.
func (r *ring) shardsOf(text string) (json string, shards map[string][]string, err error) {
	shards = map[string][]string{}
	var list []string
	for _, word := range strings.Fields(text) {
		id, names, ok := strings.Cut(word, "=")
		if !ok {
			return "", nil, fmt.Errorf("%q is no shard: write s0=a,b", word)
		}
		var replicas []string
		for i, n := range strings.Split(names, ",") {
			name, seeding := strings.CutSuffix(n, "*")
			node := address(name)
			shards[id] = append(shards[id], node)
			if seeding {
				r.seeding = append(r.seeding, node)
			}
			if i > 0 {
				replicas = append(replicas, fmt.Sprintf(`{"addr":%q,"seeding":%v}`, node, seeding))
			}
		}
		list = append(list, fmt.Sprintf(`{"id":%q,"weight":1,"primary":{"addr":%q},"replicas":[%s]}`, id, shards[id][0], strings.Join(replicas, ",")))
	}
	return "[" + strings.Join(list, ",") + "]", shards, nil
}

// address is a node as a record names it.
func address(name string) string { return name + ":1" }

// nameOf is a node as stories name it.
func nameOf(address string) string { return strings.TrimSuffix(address, ":1") }

func topologyOf(text string) (*sink.Topology, error) {
	rec, err := sink.ParseRecord("ring.json", []byte(text))
	if err != nil {
		return nil, err
	}
	return sink.NewTopology(rec)
}

// owners are the nodes that hold a text, the primary first; those under previous last.
func (r *ring) owners(text string) (nodes []string) {
	for _, t := range []*sink.Topology{r.now, r.old} {
		if t == nil {
			continue
		}
		for _, c := range t.AppendCopies(nil, text, 0) {
			if !slices.Contains(nodes, c.Node) {
				nodes = append(nodes, c.Node)
			}
		}
	}
	return nodes
}

// copiesTo are the replicas to which a node copies what it gets. To one that is being seeded it does not: whoever seeds it does.
func (r *ring) copiesTo(node string) (replicas []string) {
	for _, shards := range []map[string][]string{r.shards, r.previous} {
		for _, nodes := range shards {
			if nodes[0] != node {
				continue
			}
			for _, n := range nodes[1:] {
				if !slices.Contains(replicas, n) && !slices.Contains(r.seeding, n) {
					replicas = append(replicas, n)
				}
			}
		}
	}
	slices.Sort(replicas)
	return replicas
}

// place is a shard in which a text is to lie, under a record.
type place struct {
	epoch int64
	shard string
}

// placesOf reads "in s0" and "in s0, under record 3 in s2".
func placesOf(text string) (places []place, err error) {
	for i, part := range strings.Split(text, ", ") {
		words := strings.Fields(part)
		switch {
		case i == 0 && len(words) == 2 && words[0] == "in":
			places = append(places, place{1, words[1]})
		case i > 0 && len(words) == 5 && words[0] == "under" && words[1] == "record" && words[3] == "in":
			epoch, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q is no record", words[2])
			}
			places = append(places, place{epoch, words[4]})
		default:
			return nil, fmt.Errorf("%q is no place: write \"in s0\", and then \"under record 3 in s2\"", part)
		}
	}
	return places, nil
}

// choose finds a key of a pool that lies where it is to, under the records of the story.
func choose(pool string, from int, places []place, rings map[int64]*ring) (number int, err error) {
	const tries = 100_000
	for n := from; n < from+tries; n++ {
		fits := true
		for _, p := range places {
			r := rings[p.epoch]
			if r == nil {
				return 0, fmt.Errorf("there is no record %d in the story", p.epoch)
			}
			_, shard := r.now.Locate(fmt.Sprintf("%s:%d", pool, n))
			fits = fits && shard == p.shard
		}
		if fits {
			return n, nil
		}
	}
	return 0, fmt.Errorf("of %d keys none lies in %v", tries, places)
}
