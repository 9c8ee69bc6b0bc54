package replay

import (
	"errors"
	"fmt"
	"time"
)

// What a Cause says.
const (
	Truncate  = "truncate"  // tables lost their rows, and nothing says which they were: Tables, Record, Committed
	LostLog   = "gap"       // what was lost of a log, or may have been, also of what a debt covers: Gap; Tables and Committed where they are known
	Promotion = "promotion" // a node became the primary of a shard, and no row gives the pool's keys: Epoch
	Gained    = "gained"    // nodes gained keys under a record before which one was never seen: Epoch
)

// Cause is what made a worker, or who accepted a gap, ask for a flush, and what the request covers. Of a truncate that is every key of the pool that Tables
// fed until Committed. Requests of one pool may be answered by one flush that begins after the last of them.
type Cause struct {
	What      string    `json:"what"`
	Source    string    `json:"source,omitempty"`
	Tables    []string  `json:"tables,omitempty"` // schema.table, or schema.* for every table of it
	Record    Range     `json:"record,omitzero"`  // of the log: the one that said so
	Committed time.Time `json:"committed,omitzero"`
	Gap       string    `json:"gap,omitempty"`   // its id: it is closed when this is written, and shown with what becomes of this
	Epoch     int64     `json:"epoch,omitempty"` // of the ring record
}

func (c *Cause) validate() error {
	if c.Record != (Range{}) {
		if err := c.Record.validate(); err != nil {
			return err
		}
	}
	ok := false
	switch c.What {
	case Truncate:
		ok = len(c.Tables) > 0 && c.Record != Range{}
	case LostLog:
		ok = c.Gap != ""
	case Promotion, Gained:
		ok = c.Epoch > 0
	default:
		return fmt.Errorf("the cause %q is not known", c.What)
	}
	if !ok {
		return errors.New("the cause " + c.What + " does not say of what")
	}
	return nil
}
