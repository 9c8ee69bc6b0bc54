package envelope

import (
	"errors"

	"invalidator/cdc"
)

// Config says what a Decoder reads.
type Config struct {
	Format    Format // what the topics carry; empty: Auto
	Select    Select
	Snapshots bool // decode rows of a snapshot as Op Read; false: ignore them

	// Unavailable is what Debezium writes for an unchanged TOAST value (its unavailable.value.placeholder); empty: Debezium's
	// own default.
	Unavailable string
}

// Decoder reads records back into changes. It is safe for concurrent use.
type Decoder struct {
	Config
}

// NewDecoder checks the configuration.
func NewDecoder(c Config) (*Decoder, error) { return &Decoder{c}, nil }

// Decode reads one record. Exactly one of its results is set: the change, the word for why it is none (Ignored*), or a
// *DecodeError. It keeps no part of the record.
func (d *Decoder) Decode(rec Record) (c *cdc.RowChange, ignored string, err error) {
	return nil, "", &DecodeError{Topic: rec.Topic, Err: errors.New("not built yet")}
}
