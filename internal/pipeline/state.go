package pipeline

import (
	"encoding/json"
	"time"
)

// State is what a worker keeps of a partition that it owns, and what the next owner gets: a record on the state topic to
// which the offset commit points (docs/TOPICS.md). Its Offset and Acted are filled now. Debts and Journal have their place
// and their format, and stay empty until nodes may leave the live path and promotions are replayed.
type State struct {
	V       int           `json:"v"`      // 1
	Offset  int64         `json:"offset"` // everything below has had its rounds on every copy, except what Debts say
	Debts   []Debt        `json:"debts"`
	Journal []JournalLine `json:"journal"`
	Acted   Acted         `json:"acted"`
}

// Debt is the deletes that somebody still owes, as a range of this partition's log and never as a list of keys.
type Debt struct {
	Kind        string `json:"kind"` // node, template, pool
	Name        string `json:"name"`
	From        int64  `json:"from"`
	To          *int64 `json:"to"` // null: open, it is off the live path still
	Epoch       int64  `json:"epoch"`
	HotRevision int64  `json:"hot_revision"`
}

// JournalLine says what was issued in one second (or, where it is old, one minute) and under which snapshot.
type JournalLine struct {
	At          time.Time  `json:"at"`
	Lanes       []LaneSpan `json:"lanes"`
	Epoch       int64      `json:"epoch"`
	Confirmed   time.Time  `json:"confirmed"` // when that epoch was last confirmed current
	Fingerprint string     `json:"fingerprint"`
}

// LaneSpan is the lowest and the highest offset that one lane sent anything of, in any round and any pass.
type LaneSpan struct {
	Lane    string `json:"lane"`
	Lowest  int64  `json:"lowest"`
	Highest int64  `json:"highest"`
}

// Acted is the ring epoch and the hot keys' revision that this partition has acted on.
type Acted struct {
	Epoch       int64 `json:"epoch"`
	HotRevision int64 `json:"hot_revision"`
}

func newState(offset int64, s *Snapshot) State {
	return State{
		V: 1, Offset: offset, Debts: []Debt{}, Journal: []JournalLine{},
		Acted: Acted{Epoch: s.View.Topology.Epoch(), HotRevision: s.View.Hot.Revision()},
	}
}

func (s State) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of numbers, texts and times
	}
	return b
}
