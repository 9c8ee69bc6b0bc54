package replay

import (
	"errors"
	"fmt"
	"time"

	"invalidator/cdc"
)

// Progress is a record of kind "progress" on the status topic: how far one partition of a replay, or one slice of a flush,
// has come. The last one of (ID, Range.Topic, Range.Partition, Slice) counts.
type Progress struct {
	ID     string    `json:"id"` // of the request, or promotion/<epoch>/<shard>
	At     time.Time `json:"at"`
	Worker string    `json:"worker"`
	Range  Range     `json:"range,omitzero"` // of a replay
	Offset int64     `json:"offset"`         // of a replay: everything below has had both rounds
	Slice  int       `json:"slice"`          // of a flush, from 0
	Keys   int64     `json:"keys"`
	Copies int64     `json:"copies"`
	Done   bool      `json:"done"`
}

// Result is a record of kind "result" on the status topic: the end of a request, or why it has none.
type Result struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Worker string    `json:"worker"`
	Error  string    `json:"error,omitempty"` // empty: done
	Keys   int64     `json:"keys"`
	Copies int64     `json:"copies"`
}

// Gap is a record of kind "gap" on the status topic: changes that were lost to us, and what to flush for them. Either the
// range of a partition is named (a worker's gap) or positions and tables of a source (a feeder's).
type Gap struct {
	ID     string       `json:"id"` // the same gap seen twice has the same id
	At     time.Time    `json:"at"`
	Source string       `json:"source"`
	Why    string       `json:"why"`
	Range  *Range       `json:"range,omitempty"` // From -1: not known
	From   cdc.Position `json:"from,omitzero"`
	To     cdc.Position `json:"to,omitzero"`
	Tables []string     `json:"tables,omitempty"` // empty: all of the source
	Pools  []string     `json:"pools,omitempty"`  // to be flushed
}

// Event is a record of kind "event" on the status topic: something that an operator may look for later.
type Event struct {
	At     time.Time         `json:"at"`
	Worker string            `json:"worker"`
	What   string            `json:"what"` // a stable word: ring.epoch, node.away, node.back, storm.began, pool.pause, mapping.stopped
	About  string            `json:"about,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
}

func (p Progress) validate() error {
	if p.ID == "" {
		return errNoID
	}
	if p.Range != (Range{}) {
		if err := p.Range.validate(); err != nil {
			return err
		}
		if p.Offset < p.Range.From || p.Offset > p.Range.To {
			return fmt.Errorf("offset %d lies outside of its range", p.Offset)
		}
	}
	return nil
}

func (r Result) validate() error {
	if r.ID == "" {
		return errNoID
	}
	return nil
}

func (g Gap) validate() error {
	if g.ID == "" {
		return errNoID
	}
	if g.Range == nil && g.From.IsZero() && g.To.IsZero() {
		return errors.New("a gap needs a range or positions")
	}
	return nil
}

func (e Event) validate() error {
	if e.What == "" {
		return errors.New("an event needs a word for what happened")
	}
	return nil
}
