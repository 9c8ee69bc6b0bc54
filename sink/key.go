package sink

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// MaxKeyLen is memcached's limit for a key, in bytes, and MaxBase64KeyLen what is left of it where the key has to be sent in base64:
// the limit is about what is sent, and 187 bytes give 252.
const (
	MaxKeyLen       = 250
	MaxBase64KeyLen = 186
)

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
	if err := checkLength(wire); err != nil {
		return err
	}
	if i := badKeyByte(wire); i >= 0 {
		return &KeyError{wire, fmt.Sprintf("byte %d is 0x%02x, a space or a control byte", i+1, wire[i])}
	}
	return nil
}

// CheckMetaKey is CheckKey where clients and nodes speak the meta protocol, whose flag b says that a key is sent in base64. inBase64
// says that this one must be: it has a byte of 0x00 to 0x20 or 0x7f, and then it may have 186 bytes. What has none such is the same
// item whichever way it is written, so that it is never sent so.
func CheckMetaKey(wire string) (inBase64 bool, err error) {
	if badKeyByte(wire) < 0 {
		return false, checkLength(wire)
	}
	if len(wire) > MaxBase64KeyLen {
		return true, &KeyError{wire, fmt.Sprintf("it is %d bytes long, the limit is %d for one that has to be sent in base64", len(wire), MaxBase64KeyLen)}
	}
	return true, nil
}

func checkLength(wire string) error {
	switch {
	case wire == "":
		return &KeyError{wire, "it is empty"}
	case len(wire) > MaxKeyLen:
		return &KeyError{wire, fmt.Sprintf("it is %d bytes long, the limit is %d", len(wire), MaxKeyLen)}
	}
	return nil
}

// Base64 is the base64 of a key that a line of text, or of JSON, cannot show as it is: with a space, a control byte, or bytes that
// are no UTF-8. It is empty for any other.
func Base64(key string) string {
	if badKeyByte(key) < 0 && utf8.ValidString(key) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(key))
}

// Show is a key for a person: as it is, or quoted with escapes as in Go ("a b\x00") where Base64 is not empty.
func Show(key string) string {
	if badKeyByte(key) < 0 && utf8.ValidString(key) {
		return key
	}
	return strconv.Quote(key)
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
