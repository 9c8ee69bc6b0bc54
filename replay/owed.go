package replay

import (
	"errors"
	"time"
)

// Owed is a record of kind "owed" on the status topic, and the value under a node's name in etcd: what a node owes in all partitions of
// the log together. The last one of (Group, Node) counts.
type Owed struct {
	Node       string    `json:"node"`  // host:port, as the ring record writes it
	Group      string    `json:"group"` // the workers' consumer group
	At         time.Time `json:"at"`
	Worker     string    `json:"worker"`
	Paid       bool      `json:"paid"`              // nothing is owed; what follows is 0 then
	Partitions int       `json:"partitions"`        // of change topics, in which it owes something
	Records    int64     `json:"records"`           // of the log, whose deletes it may lack; to the partition's end where it still is off
	Since      time.Time `json:"since,omitzero"`    // when the oldest of these debts was opened
	Off        bool      `json:"off"`               // off the live path of at least one partition: what comes is owed too
	Rate       float64   `json:"rate"`              // records a second that were paid in the last half minute
	Seconds    int64     `json:"seconds,omitempty"` // until it is paid at this rate, at least 1; 0: not known, or it is off
}

func (o Owed) validate() error {
	switch {
	case o.Node == "" || o.Group == "":
		return errors.New("what is owed needs a node and a group")
	case o.Paid != (o.Partitions == 0):
		return errors.New("paid is where no partition is owed, and nowhere else")
	}
	return nil
}
