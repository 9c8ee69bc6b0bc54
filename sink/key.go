package sink

import "fmt"

// MaxKeyLen is memcached's limit for a key, in bytes.
const MaxKeyLen = 250

// KeyError is a key that memcached cannot hold, so no client can have stored it.
type KeyError struct {
	Key     string // on the wire: key_prefix and #n included
	Problem string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("key %q cannot be in memcached: %s", e.Key, e.Problem)
}

// CheckKey returns a *KeyError unless memcached takes wire as one key: 1 to 250 bytes, none of them 0x00 to 0x20 or 0x7f.
// Anything else would end the command line early and delete another key, or run another command.
func CheckKey(wire string) error {
	switch {
	case wire == "":
		return &KeyError{wire, "it is empty"}
	case len(wire) > MaxKeyLen:
		return &KeyError{wire, fmt.Sprintf("it is %d bytes long, the limit is %d", len(wire), MaxKeyLen)}
	}
	if i := badKeyByte(wire); i >= 0 {
		return &KeyError{wire, fmt.Sprintf("byte %d is 0x%02x, a space or a control byte", i+1, wire[i])}
	}
	return nil
}

// badKeyByte is the index of the first byte that a key may not have, or -1.
func badKeyByte(s string) int {
	for i := range len(s) {
		if s[i] <= 0x20 || s[i] == 0x7f {
			return i
		}
	}
	return -1
}
