package sink

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A text that moved lies in a cell of AddMoved, whatever changes of whatever ring moved it.
func TestCellsHaveAllThatMoved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := []*Record{drawRecord(rt)}
		for range rapid.IntRange(0, 4).Draw(rt, "changes") {
			records = append(records, drawChange(rt, records[len(records)-1]))
		}
		placed, err := NewTopology(rapid.SampledFrom(records).Draw(rt, "placed under"))
		if err != nil {
			rt.Fatal(err)
		}
		m, cells := NewMoves(records), NewCells()
		if !cells.AddMoved(m, placed) {
			return
		}
		for range 50 {
			key := rapid.StringMatching(`[a-z]:[0-9]{1,6}`).Draw(rt, "key")
			if m.Moved(key, 0) && !cells.Has(placed.Cell(key)) {
				rt.Fatalf("%s moved, and its cell %d is not among them", key, placed.Cell(key))
			}
		}
	})
}

// One shard of 64 is a sixty-fourth of the ring; its cells are a fiftieth. Of what lies on it all are in one.
func TestCellsOfOneShard(t *testing.T) {
	var shards [][]string
	for i := range 64 {
		shards = append(shards, []string{fmt.Sprintf("p%d:1", i), fmt.Sprintf("r%d:1", i)})
	}
	before := ring(1, shards...)
	shards[7] = []string{"r7:1"}
	placed, err := NewTopology(before)
	if err != nil {
		t.Fatal(err)
	}
	cells := NewCells()
	if !cells.AddMoved(NewMoves([]*Record{before, ring(2, shards...)}), placed) {
		t.Fatal("its cells are not told apart")
	}
	in := 0
	for n := range 100_000 {
		key := fmt.Sprint("user:", n)
		has := cells.Has(placed.Cell(key))
		if has {
			in++
		}
		if _, shard := placed.Locate(key); shard == "s7" && !has {
			t.Fatalf("%s lies on it, and in none of its cells", key)
		}
	}
	if in < 1500 || in > 2500 {
		t.Errorf("%d of 100,000 keys lie in its cells", in)
	}
}

// Where everything moved, or lay elsewhere when it was placed, cells say nothing.
func TestCellsThatSayNothing(t *testing.T) {
	a, b := []string{"a:1", "b:1"}, []string{"b:1", "a:1"}
	plain, promoted := ring(1, a, b), ring(2, b, a)
	top := func(r *Record) *Topology {
		placed, err := NewTopology(r)
		if err != nil {
			t.Fatal(err)
		}
		return placed
	}
	for name, c := range map[string]struct {
		m    *Moves
		ring *Topology
		want bool
	}{
		"promoted":                 {NewMoves([]*Record{plain, promoted}), top(plain), true},
		"placed behind it":         {NewMoves([]*Record{plain, promoted}), top(promoted), true},
		"everything moved":         {nil, top(plain), false},
		"no record is known":       {NewMoves(nil), top(plain), false},
		"placed with a prefix":     {NewMoves([]*Record{plain, promoted}), top(prefixedWith(plain, "x/")), false},
		"placed on another ring":   {NewMoves([]*Record{plain, promoted}), top(&Record{Epoch: 1, Kind: KindKetama, Shards: plain.Shards}), false},
		"under previous of modulo": {NewMoves([]*Record{modulo(under(ring(2, a, b), ring(1, a))), modulo(under(ring(3, a, b), ring(1, b)))}), top(modulo(ring(2, a, b))), false},
	} {
		if got := NewCells().AddMoved(c.m, c.ring); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
