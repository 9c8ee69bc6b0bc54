package replay

import (
	"errors"
	"fmt"
	"time"
)

// Job is a record of kind "job" on the control topic: a flush begins. It is written by the conductor (internal/flush), before it takes the first mark on a node; a
// later conductor goes on with it. The first job of an id counts.
type Job struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Worker  string    `json:"worker"`
	Scope   Target    `json:"scope"`   // of the first of Answers
	Answers []string  `json:"answers"` // requests, all of which lie before this record: what they ask for is flushed, and it ends with the last of them
	DryRun  bool      `json:"dry_run,omitempty"`
	Options
	Epoch int64   `json:"epoch"` // of the ring record in force
	Limit float64 `json:"limit"` // of the load: what max_load says, or what was measured
	Parts int     `json:"parts"` // into how many the keys of each node are cut
}

// Part is a part of a node's keys: those whose hash is in the N-th of Of equal ranges, from 0.
type Part struct {
	N  int `json:"n"`
	Of int `json:"of"`
}

// String names it: "2/4".
func (p Part) String() string { return fmt.Sprintf("%d/%d", p.N+1, p.Of) }

func (p Part) validate() error {
	if p.N < 0 || p.N >= p.Of {
		return fmt.Errorf("the part %d of %d is none", p.N, p.Of)
	}
	return nil
}

func (j Job) validate() error {
	switch {
	case j.ID == "":
		return errNoID
	case !j.Scope.flushable():
		return errors.New("a job needs the target of a flush")
	case len(j.Answers) == 0:
		return errors.New("a job answers one request at least")
	case j.Epoch < 1 || j.Limit < 0 || j.Parts < 1 || j.Parts > maxSlices:
		return fmt.Errorf("a job needs an epoch, 1 to %d parts, and a limit that is not below 0", maxSlices)
	}
	return j.Options.validate()
}
