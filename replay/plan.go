package replay

import (
	"errors"
	"fmt"
	"time"
)

// Plan is a record of kind "plan" on the control topic: what becomes of a replay by hand, for every partition of the log. It is written by the
// clerk (internal/control) and says all that a partition's owner needs. Of the plans and cancels of an id the first in the log counts.
type Plan struct {
	ID      string      `json:"id"` // of the request
	At      time.Time   `json:"at"`
	Worker  string      `json:"worker"`
	Target  Target      `json:"target,omitzero"`
	Window  Window      `json:"window,omitempty"`
	From    time.Time   `json:"from,omitzero"`
	To      time.Time   `json:"to,omitzero"`
	DryRun  bool        `json:"dry_run,omitempty"`
	Refused string      `json:"refused,omitempty"` // why nothing is done; then it has no ranges
	Ranges  []PlanRange `json:"ranges,omitempty"`  // a partition each, of those that hold anything
}

// PlanRange is a partition as it stood when the plan was made.
type PlanRange struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topic_id,omitempty"` // a topic that is made again has another; empty: the broker knows none
	Partition int32  `json:"partition"`
	From      int64  `json:"from"` // where the log began
	To        int64  `json:"to"`   // where it ended
	// Since is of a Committed window: the first offset whose record was appended no earlier than 15 s before the window. All from there on are looked at.
	Since *int64 `json:"since,omitempty"`
}

// Range is a part of one partition of the log: offsets o with From <= o < To.
type Range struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

func (r Range) validate() error {
	if r.Topic == "" || r.Partition < 0 || r.From < 0 || r.To < r.From {
		return fmt.Errorf("the range %s/%d [%d, %d) is none", r.Topic, r.Partition, r.From, r.To)
	}
	return nil
}

func (p Plan) validate() error {
	if p.ID == "" {
		return errNoID
	}
	if p.Refused != "" {
		if len(p.Ranges) > 0 {
			return errors.New("a plan that is refused has no ranges")
		}
		return nil
	}
	if p.Target.count() != 1 || p.Target.Gained != 0 {
		return errors.New("a plan needs the target of a replay")
	}
	if err := validWindow(p.Window, p.From, p.To); err != nil {
		return err
	}
	if p.To.IsZero() {
		return errors.New("the window of a plan needs to")
	}
	for _, r := range p.Ranges {
		if err := (Range{r.Topic, r.Partition, r.From, r.To}).validate(); err != nil {
			return err
		}
		if (r.Since != nil) != (p.Window == Committed) || r.Since != nil && (*r.Since < r.From || *r.Since > r.To) {
			return fmt.Errorf("the range %s/%d begins at no time", r.Topic, r.Partition)
		}
	}
	return nil
}
