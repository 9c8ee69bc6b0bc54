package replay

import (
	"errors"
	"fmt"
	"time"

	"invalidator/cdc"
)

// Progress is a record of kind "progress" on the status topic: how far one partition of a replay, or one part of a job on one node, has come. It is for
// people: what is done is what the partitions' states say, and of a job what its conductor goes on from. The last one of (ID, Range.Topic,
// Range.Partition), or of (ID, Part, Node, Round), counts.
type Progress struct {
	ID     string    `json:"id"` // of the replay, the job, or epoch/<a>-<b>
	At     time.Time `json:"at"`
	Worker string    `json:"worker"`
	// Of a replay, and of a change of the ring:
	Range  Range    `json:"range,omitzero"`
	Offset int64    `json:"offset,omitempty"` // everything below has had its rounds; at least Range.From
	Owed   int64    `json:"owed,omitempty"`   // keys that were left to a pool's debt
	Lost   int64    `json:"lost,omitempty"`   // offsets that the log no longer held
	Shards []string `json:"shards,omitempty"` // that were promoted between the two epochs
	// Of a job:
	Part  *Part  `json:"part,omitempty"`
	Node  string `json:"node,omitempty"`
	Round int    `json:"round,omitempty"` // of the part, from 1
	Epoch int64  `json:"epoch,omitempty"` // of the ring record in force
	Kept  int64  `json:"kept,omitempty"`  // keys that were filled after the mark, or changed since
	Waits string `json:"waits,omitempty"` // why it does not go on: the load is above its limit, the node is off
	// Of both:
	Keys   int64 `json:"keys"`
	Copies int64 `json:"copies"`
	Done   bool  `json:"done"`
}

// Result is a record of kind "result" on the status topic: the end of a request. The first of an id counts.
type Result struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Worker string    `json:"worker"`
	Error  string    `json:"error,omitempty"` // why it was not done, or not to its end
	Clean  bool      `json:"clean"`           // all that was asked for was done, or is owed by a node or a pool: no error, nothing lost
	Keys   int64     `json:"keys"`
	Copies int64     `json:"copies"`
	Owed   int64     `json:"owed,omitempty"` // as Progress has them
	Lost   int64     `json:"lost,omitempty"`
	Kept   int64     `json:"kept,omitempty"`
	// Seconds is of a dry run of a flush: how long it takes at the least, by its pace and refill.
	Seconds int64 `json:"seconds,omitempty"`
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
	if (p.Part != nil) == (p.Range != Range{}) {
		return errors.New("progress is of a range, or of a part")
	}
	if p.Part != nil {
		if p.Node == "" {
			return errors.New("progress of a part needs a node")
		}
		return p.Part.validate()
	}
	if err := p.Range.validate(); err != nil {
		return err
	}
	if p.Offset < p.Range.From || p.Offset > p.Range.To {
		return fmt.Errorf("offset %d lies outside of its range", p.Offset)
	}
	return nil
}

func (r Result) validate() error {
	if r.ID == "" {
		return errNoID
	}
	if r.Clean && (r.Error != "" || r.Lost > 0) {
		return errors.New("a result with an error, or with what is lost, is not clean")
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
