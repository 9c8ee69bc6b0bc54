package registry

import (
	"fmt"
	"reflect"

	"invalidator/sink"
)

// EpochError is a ring record that is not newer than the one in use, and was therefore ignored.
type EpochError struct {
	Source     string
	Epoch, Has int64 // offered, in use
}

func (e *EpochError) Error() string {
	if e.Epoch == e.Has {
		return fmt.Sprintf("%s: the record was changed but its epoch is still %d (raise the epoch with every record)", e.Source, e.Epoch)
	}
	return fmt.Sprintf("%s: epoch %d is older than %d, which is in use (publish a record of a higher epoch)", e.Source, e.Epoch, e.Has)
}

// ring keeps the last good topology.
type ring struct {
	topology *sink.Topology // nil before the first
}

// offer takes a record of a higher epoch than the one in use, and the one in use again. An error says why the record was
// not taken; the last good one stays.
func (r *ring) offer(source string, data []byte) error {
	record, err := sink.ParseRecord(source, data)
	if err != nil {
		return err
	}
	if r.topology != nil && record.Epoch <= r.topology.Epoch() {
		if reflect.DeepEqual(record, r.topology.Record()) {
			return nil
		}
		return &EpochError{source, record.Epoch, r.topology.Epoch()}
	}
	topology, err := sink.NewTopology(record)
	if err != nil {
		return err
	}
	r.topology = topology
	return nil
}
