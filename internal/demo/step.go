package demo

import (
	"fmt"

	"invalidator/sink"
)

// step is one scene of the story, played on each database with rows of its own.
type step struct {
	title string
	note  string // why it matters
	table *table
	rows  int // that stand before, with the ids first, first+1, …
	// writes are one transaction. first is the first row's id, or the first free one where there are no rows.
	writes func(first uint64) []write

	hot    int  // the registry declares the first row's first key hot, with so many copies
	resize bool // a resize begins, and the row is one whose keys move
	slow   bool // a reader that had read the old row puts it back after the first round
}

// announced says whether something is published that the workers must know before the commit.
func (s step) announced() bool { return s.hot > 0 || s.resize }

// batch is how many rows the batch job's step has. It deletes the last few.
const batch = 100

// movable is how many rows a resize finds one in whose keys move: a sixth of all keys does.
const movable = 100

var steps = []step{
	{
		title: "A plain update",
		note:  "every key that the row feeds goes, on the primary and on the replica of its shard",
		table: users, rows: 1,
		writes: func(id uint64) []write { return []write{update(users, id, id, "name", "Ada King")} },
	},
	{
		title: "A changed email",
		note:  "the old address's key goes, and so does the marker \"not found\" under the new one",
		table: users, rows: 1,
		writes: func(id uint64) []write {
			return []write{update(users, id, id, "email", fmt.Sprintf("Countess.%d@demo.test", id))}
		},
	},
	{
		title: "A changed primary key",
		note:  "it reaches Kafka as a delete under the old key and a create under the new, on two partitions",
		table: users, rows: 1,
		writes: func(id uint64) []write { return []write{update(users, id, id, "id", number(id+1))} },
	},
	{
		title: "A delete",
		note:  "the keys come from the row as it was",
		table: users, rows: 1,
		writes: func(id uint64) []write { return []write{remove(users, id, id)} },
	},
	{
		title: "An insert clears \"not found\"",
		note:  "readers asked for the row before there was one, and cached that",
		table: users, rows: 0,
		writes: func(id uint64) []write { return []write{insert(users, users.seed(id))} },
	},
	{
		title: "A hot key, by the mapping",
		note:  "catalogue.yaml says hot: 8, so product:{id}#1 to #8 go too, each at its own owner",
		table: products, rows: 1,
		writes: func(id uint64) []write { return []write{update(products, id, id, "price", "500.00")} },
	},
	{
		title: "A hot key, by the registry",
		note:  "the registry declares one user's key hot while the workers run",
		table: users, rows: 1, hot: 8,
		writes: func(id uint64) []write { return []write{update(users, id, id, "city", "Marylebone")} },
	},
	{
		title: "A slow reader",
		note:  "it read the row before the commit and fills after the first round: the second round is for it",
		table: users, rows: 1, slow: true,
		writes: func(id uint64) []write { return []write{update(users, id, id, "name", "Ada Lovelace")} },
	},
	{
		title: "A batch job",
		note:  "many rows in one transaction, past every service that knows of the cache",
		table: users, rows: batch,
		writes: func(id uint64) []write {
			return []write{
				update(users, id, id+batch-11, "city", "Kiel"),
				remove(users, id+batch-10, id+batch-1),
			}
		},
	},
}

// resizing is played last: from then on clients read under two rings.
var resizing = step{
	title: "A resize in progress",
	note:  "shard s01 grows; clients read a moved key at its new owner, then at its old: both copies go",
	table: users, rows: movable, resize: true,
	writes: func(id uint64) []write { return []write{update(users, id, id, "city", "Turin")} },
}

// Numbers of rows, within a database's share of the demo's ids.
const (
	perStep     = 1_000
	perDatabase = 1_000_000
	quietRows   = 10 // rows that nobody changes: their copies shall stay
	firstQuiet  = 800_000
	firstPaced  = 900_000 // the rows of the latency part
)

// first is the id of a step's first row; nth counts the steps.
func first(base uint64, nth int) uint64 { return base + uint64(nth)*perStep }

// key is the first key under which readers keep a row.
func (t *table) key(r row) string { return t.keys[0].of(r) }

// without returns the copies that are not in others.
func without(copies, others []sink.Copy) []sink.Copy {
	in := make(map[sink.Copy]bool, len(others))
	for _, c := range others {
		in[c] = true
	}
	var out []sink.Copy
	for _, c := range copies {
		if !in[c] {
			out = append(out, c)
		}
	}
	return out
}
