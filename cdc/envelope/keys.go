package envelope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"invalidator/cdc"
)

// keysVersion is raised when a reader of an older version would delete another key than the one that is meant.
const keysVersion = "1"

// keysRecord are the members of a record of keys that are read; by and reason are for people.
type keysRecord struct{ version, keys, base64, ordinal []byte }

func (k *keysRecord) place(name []byte) *[]byte {
	switch string(name) {
	case "v":
		return &k.version
	case "keys":
		return &k.keys
	case "keys_base64":
		return &k.base64
	case "ordinal":
		return &k.ordinal
	}
	return nil
}

// sentKeys reads a record of keys. The keys are texts of their own.
func (r *reading) sentKeys() (*cdc.RowChange, string, error) {
	if r.rec.Value == nil {
		return nil, "", errors.New("a record of keys without a value (the keys stand in it; the record's own key is none of them)")
	}
	var k keysRecord
	if err := parseMembers(r.rec.Value, k.place); err != nil {
		return nil, "", err
	}
	if string(k.version) != keysVersion {
		return nil, "", fmt.Errorf("a record of keys has version %.20q, this program reads %s", k.version, keysVersion)
	}
	if isNull(k.keys) && isNull(k.base64) {
		return nil, "", errors.New("a record of keys has neither keys nor keys_base64")
	}
	c := &r.s.change
	*c = cdc.RowChange{Source: r.d.conf.Source, Op: cdc.Keys}
	if err := eachText("keys", k.keys, func(text []byte) error {
		if !utf8.Valid(text) {
			return errors.New("it is not valid UTF-8 (keys_base64 is for bytes that are no text)")
		}
		c.Keys = append(c.Keys, string(text))
		return nil
	}); err != nil {
		return nil, "", err
	}
	if err := eachText("keys_base64", k.base64, func(text []byte) error {
		key, err := base64.StdEncoding.AppendDecode(nil, text)
		if err != nil {
			return errNotBase64
		}
		c.Keys = append(c.Keys, string(key))
		return nil
	}); err != nil {
		return nil, "", err
	}
	if len(c.Keys) == 0 {
		return nil, IgnoredEmpty, nil
	}
	c.Ordinal = max(intOf(k.ordinal), 0) + int64(len(c.Keys)) - 1
	return c, "", nil
}

// eachText reads a list of texts; null is an empty one.
func eachText(name string, raw []byte, do func(text []byte) error) error {
	if isNull(raw) {
		return nil
	}
	s := scanner{b: raw}
	if !s.take('[') {
		return fmt.Errorf("%s is no list", name)
	}
	if s.take(']') {
		return nil
	}
	for n := 0; ; n++ {
		value, err := s.raw()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if value[0] != '"' {
			return fmt.Errorf("%s[%d] is no text", name, n)
		}
		text, ok := unquote(value)
		if !ok {
			return fmt.Errorf("%s[%d] has half a character", name, n)
		}
		if err := do(text); err != nil {
			return fmt.Errorf("%s[%d]: %w", name, n, err)
		}
		if !s.take(',') { // the list was passed over before: it ends here
			return nil
		}
	}
}
