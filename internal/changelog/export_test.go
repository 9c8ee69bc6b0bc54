package changelog

import "invalidator/cdc"

// DecodePosition is the decoder of position records, for its fuzz test.
func DecodePosition(data []byte) (cdc.Position, error) {
	r, err := decodePosition(data)
	return r.Position, err
}
