package registry

import (
	"context"
	"time"

	"invalidator/sink"
)

// View is one consistent sight of the registry. Immutable.
type View struct {
	Topology *sink.Topology
	Hot      *sink.HotKeys // never nil; empty where there are none
	// Confirmed is a moment at which the registry held what Topology and Hot say: nothing newer had been written by then.
	// It stands still while the registry cannot be reached or holds a ring record that is not the one in use.
	Confirmed time.Time
	// Carried is a moment until which clients that had yet to see a newer record may have carried values from node to node, or a node
	// seeded another: ring.lag after the last one at which previous stood, or a replica was seeding, as far as is known. It says nothing of
	// what stands now. Zero: long ago.
	Carried time.Time
	// Sights are the records that Topology knows, by epoch, the one in force last. An epoch that is missing between two was never seen by
	// any worker, or was replaced longer ago than its copies live. Read only.
	Sights []Sight
	// Unseen are the holes among the Sights, ended or not. Read only.
	Unseen []Hole
	// Local says that the view is of a file of this host: what Confirmed says is of the host, and nothing of clients, whose hosts have files of
	// their own.
	Local bool

	gained *gained
}

// Saved is what other workers, or this one before it was started, have seen.
type Saved struct {
	Sights      []Sight
	Hot         map[string]sink.HotEntry
	HotRevision int64 // of the newest change that any of them saw
	HotSeen     int64 // they saw every change up to this revision, and Hot has what is left of them; where there is a history, what follows is seen in it
}

// Carrying says that somebody may carry values from copy to copy at now, so that one delete is not enough: previous stands or a replica
// is seeding, or did so within ring.lag + settle.
func (v *View) Carrying(now time.Time, settle time.Duration) bool {
	return v.Topology.HasPrevious() || v.Topology.Seeding() || now.Before(v.Carried.Add(settle))
}

// Epochs are those of the Sights, ascending.
func (v *View) Epochs() []int64 {
	epochs := make([]int64, len(v.Sights))
	for i, s := range v.Sights {
		epochs[i] = s.Record.Epoch
	}
	return epochs
}

// Between are the known records of the epochs a to b, both included, ascending. whole says that there are such epochs and none of them is missing.
func (v *View) Between(a, b int64) (records []*sink.Record, whole bool) {
	for _, s := range v.Sights {
		if epoch := s.Record.Epoch; a <= epoch && epoch <= b {
			records = append(records, s.Record)
		}
	}
	return records, a <= b && int64(len(records)) == b-a+1
}

// Watcher follows one source of ring and hot keys.
type Watcher interface {
	// Run blocks until ctx ends. It returns an error only when the first View cannot be had for a reason that waiting does
	// not mend (a broken file at start); an unreachable etcd is waited for, and reported.
	Run(ctx context.Context) error
	// Ready is closed when View may be called.
	Ready() <-chan struct{}
	// View is the last good view; a single atomic load. Nil before Ready.
	View() *View
	// Changed is closed when the next View stands, also where only Confirmed moved. Take it before View, so that no view is
	// missed between the two.
	Changed() <-chan struct{}
	// Feed adds what stands elsewhere: a newer record comes into force, an older one counts as a former. It may be called at any
	// time, from any goroutine; the same again changes nothing.
	Feed(Saved)
}
