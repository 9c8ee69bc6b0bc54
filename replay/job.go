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
	Scope   Target    `json:"scope"`   // as a flush's
	Answers []string  `json:"answers"` // requests, all of which lie before this record: it ends with the last of them
	DryRun  bool      `json:"dry_run,omitempty"`
	Options
	Epoch int64   `json:"epoch"` // of the ring record that its parts are of
	Limit float64 `json:"limit"` // of the load: what max_load says, or what was measured
	Parts []Part  `json:"parts"` // in the order in which they are flushed
}

// Part is a part of a ring: those keys of a shard of which hash(wire text) mod Of is N.
type Part struct {
	Shard string `json:"shard"`
	N     int    `json:"n,omitempty"`
	Of    int    `json:"of,omitempty"` // 0 and 1: all of the shard
}

// String names it: "s00", "s00 2/4".
func (p Part) String() string {
	if p.Of < 2 {
		return p.Shard
	}
	return fmt.Sprintf("%s %d/%d", p.Shard, p.N+1, p.Of)
}

func (p Part) validate() error {
	if p.Shard == "" || p.N < 0 || p.N >= max(p.Of, 1) {
		return fmt.Errorf("the part %d of %d of shard %q is none", p.N, p.Of, p.Shard)
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
	case j.Epoch < 1 || j.Limit < 0 || len(j.Parts) == 0:
		return errors.New("a job needs an epoch, parts, and a limit that is not below 0")
	}
	for _, p := range j.Parts {
		if err := p.validate(); err != nil {
			return err
		}
	}
	return j.Options.validate()
}
