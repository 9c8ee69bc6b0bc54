package envelope

import (
	"errors"
	"time"

	"invalidator/cdc"
)

// Options are how Encode writes a change. The zero Options write whole rows of any size.
type Options struct {
	MaxBytes int       // limit for key and value together, in bytes; 0: none
	Keep     []string  // columns that a slim record keeps beside the key's
	At       time.Time // when the feeder handled the change; zero: its commit time
}

// ErrTooLarge says that not even the key columns of a change fit the size limit.
var ErrTooLarge = errors.New("record too large even with its key columns alone")

// Encode writes a change as the key and value of a Kafka record. Both lie in buf's memory, grown where it is too small, so
// that a caller may reuse it once the record is on its way; a nil buf allocates. A nil key is Kafka's null. A change whose
// key columns differ between its images must be Split first. An error names the table and column that cannot be written.
func Encode(c *cdc.RowChange, o Options, buf []byte) (key, value []byte, err error) {
	return nil, nil, errors.New("not built yet")
}

// Split gives the records that a change is written as. It is the change itself (and nil), but for an update that changes
// the key: a delete under the old key and a create under the new, so that both keys' partitions see it.
func Split(c *cdc.RowChange) (first, second *cdc.RowChange) { return c, nil }
