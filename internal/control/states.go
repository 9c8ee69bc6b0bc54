package control

import (
	"context"
	"errors"
	"fmt"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

// states are what the states of a group's partitions say of plans. It is for one goroutine.
type states struct {
	group    string
	follower *changelog.StateFollower
	of       map[changelog.Partition]map[origin]said
}

// origin is who wrote a state. A static member that restarts keeps its generation, and has another name.
type origin struct {
	generation int32
	writer     string
}

// said is what one record says.
type said struct {
	acted   pipeline.ControlMark
	replays []string // ids of those that are not paid
	bad     error    // why it cannot be read
}

func openStates(store *changelog.StateStore, group string) (*states, error) {
	f, err := store.FollowAll(changelog.KeysUnder("partition", group))
	if err != nil {
		return nil, err
	}
	return &states{group, f, map[changelog.Partition]map[origin]said{}}, nil
}

func (s *states) close() { s.follower.Close() }

// read takes in what came.
func (s *states) read(ctx context.Context) error {
	err := s.follower.Read(ctx, s.apply)
	if errors.Is(err, changelog.ErrMadeAgain) {
		clear(s.of)
	}
	return err
}

func (s *states) apply(key string, value []byte) {
	p, generation, writer, err := changelog.SplitPartitionKey(key)
	if err != nil { // not a key that any version has written
		return
	}
	o := origin{generation, writer}
	if value == nil {
		delete(s.of[p], o)
		return
	}
	if s.of[p] == nil {
		s.of[p] = map[origin]said{}
	}
	var is said
	if is.acted, is.replays, err = pipeline.ActedOf(value); err != nil {
		is.bad = fmt.Errorf("the state %s: %w", key, err)
	}
	s.of[p][o] = is
}

// done reports whether a partition is done with the plan of an id that lies at an offset of the control topic: it has acted on it, and owes nothing of it. Only the
// states of the highest generation count: who owns the partition now goes on from what counted before, and says so in one of its own. The error is of a state that counts
// and cannot be read.
func (s *states) done(p changelog.Partition, id, control string, offset int64) (bool, error) {
	highest := int32(-1)
	for o := range s.of[p] {
		highest = max(highest, o.generation)
	}
	for o, is := range s.of[p] {
		switch {
		case o.generation != highest:
			continue
		case is.bad != nil:
			return false, is.bad
		case is.acted.Topic != control || is.acted.Offset <= offset:
			return false, nil
		}
		for _, owed := range is.replays {
			if owed == id {
				return false, nil
			}
		}
	}
	return highest >= 0, nil
}
