package owed

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

// Owner is who owes: a node, a mapping or a pool.
type Owner struct{ Kind, Name string }

// Sum is what the state topic says of the debts of a group's partitions. It is for one goroutine.
type Sum struct {
	group  string
	states map[changelog.Partition]map[origin]state
}

// origin is who wrote a state. A static member that restarts keeps its generation, and has another name.
type origin struct {
	generation int32
	writer     string
}

// state is what one record says.
type state struct {
	offset int64 // everything below is finished, or owed
	debts  []pipeline.Debt
	bad    error // why it cannot be read
}

// NewSum begins with nothing.
func NewSum(group string) *Sum {
	return &Sum{group, map[changelog.Partition]map[origin]state{}}
}

// Wanted chooses the keys of a group that Apply takes.
func Wanted(group string) func(key []byte) bool { return changelog.KeysUnder("partition", group) }

// Apply takes the last record of a key, or its removal, where value is nil.
func (s *Sum) Apply(key string, value []byte) {
	p, generation, writer, err := changelog.SplitPartitionKey(key)
	o := origin{generation, writer}
	if err != nil { // not a key that any version has written
		return
	}
	if value == nil {
		delete(s.states[p], o)
		if len(s.states[p]) == 0 {
			delete(s.states, p)
		}
		return
	}
	if s.states[p] == nil {
		s.states[p] = map[origin]state{}
	}
	var st state
	if st.offset, st.debts, err = pipeline.DebtsOf(value); err != nil {
		st.bad = fmt.Errorf("the state %s: %w", key, err)
	}
	s.states[p][o] = st
}

// counting are the states of a partition that count: those of its highest generation. What a lower one has more was paid: an owner begins with the debts
// to which the last commit points, and writes its state before its first commit. Several of one generation all count, since their order is not
// known; the commit of the last one removes the others.
func (s *Sum) counting(p changelog.Partition) (of []state) {
	highest := int32(-1)
	for o := range s.states[p] {
		highest = max(highest, o.generation)
	}
	for o, st := range s.states[p] {
		if o.generation == highest {
			of = append(of, st)
		}
	}
	return of
}

// Partitions are those that have a state, in order.
func (s *Sum) Partitions() []changelog.Partition {
	return slices.SortedFunc(maps.Keys(s.states), func(a, b changelog.Partition) int {
		if a.Topic != b.Topic {
			return bytes.Compare([]byte(a.Topic), []byte(b.Topic))
		}
		return int(a.Number) - int(b.Number)
	})
}

// Offset is below which everything of a partition is finished or owed, as its state says; false: it has none that can be read.
func (s *Sum) Offset(p changelog.Partition) (offset int64, known bool) {
	for _, st := range s.counting(p) {
		if st.bad == nil {
			offset, known = max(offset, st.offset), true
		}
	}
	return offset, known
}

// Debts are what is owed by a partition. The error is of states that count and cannot be read: more may be owed.
func (s *Sum) Debts(p changelog.Partition) (map[Owner]pipeline.Debt, error) {
	all := map[Owner]pipeline.Debt{}
	var bad error
	for _, st := range s.counting(p) {
		if st.bad != nil {
			bad = errors.Join(bad, st.bad)
		}
		for _, d := range st.debts {
			who := Owner{d.Kind, d.Name}
			if other, ok := all[who]; ok {
				d = wider(d, other)
			}
			all[who] = d
		}
	}
	return all, bad
}

// wider is what two debts of one owner cover together.
func wider(a, b pipeline.Debt) pipeline.Debt {
	a.From = min(a.From, b.From)
	if b.Since.Before(a.Since) {
		a.Since = b.Since
	}
	if a.To != nil && (b.To == nil || *b.To > *a.To) {
		a.To = b.To
	}
	return a
}

// Debts of a fleet, by owner and partition.
type Debts map[Owner]map[changelog.Partition]pipeline.Debt

// All are the debts of all partitions. The error is of states that cannot be read: more may be owed.
func (s *Sum) All() (Debts, error) {
	all := Debts{}
	var bad []error
	for _, p := range s.Partitions() {
		debts, err := s.Debts(p)
		if err != nil {
			bad = append(bad, err)
		}
		for who, d := range debts {
			if all[who] == nil {
				all[who] = map[changelog.Partition]pipeline.Debt{}
			}
			all[who][p] = d
		}
	}
	return all, errors.Join(bad...)
}

// Total is what one owes.
type Total struct {
	Partitions int
	Records    int64     // of the log; of an open debt up to the partition's end, where that is known
	Since      time.Time // when the oldest debt was opened
	Open       bool      // one of them at least is: what comes is owed too
}

// TotalOf sums up the debts of one owner. ends says where partitions end.
func TotalOf(debts map[changelog.Partition]pipeline.Debt, ends map[changelog.Partition]int64) Total {
	t := Total{Partitions: len(debts)}
	for p, d := range debts {
		if t.Since.IsZero() || d.Since.Before(t.Since) {
			t.Since = d.Since
		}
		to := ends[p]
		if d.To != nil {
			to = *d.To
		}
		t.Open = t.Open || d.To == nil
		t.Records += max(to-d.From, 0)
	}
	return t
}
