package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"invalidator/cdc"
)

// defaultUnavailable is Debezium's default unavailable.value.placeholder.
const defaultUnavailable = "__debezium_unavailable_value"

// placeholder is what Debezium writes for a TOAST value that did not change and so was not sent, in each form it takes:
// text, base64 or hex of it, an array of it (of its bytes, for integers), a map from it to itself.
type placeholder struct{ forms [][]byte }

func newPlaceholder(text string) placeholder {
	if text == "" {
		text = defaultUnavailable
	}
	quote := func(v any) []byte {
		b, _ := json.Marshal(v) // of texts and numbers: it cannot fail
		return b
	}
	numbers := make([]int, len(text))
	for i := range len(text) {
		numbers[i] = int(text[i])
	}
	plain, encoded := quote(text), quote(base64.StdEncoding.EncodeToString([]byte(text)))
	return placeholder{[][]byte{
		plain, encoded, quote([]string{text}), quote(numbers), quote(map[string]string{text: text}),
		quote(string(quote(map[string]string{text: text}))), quote(hex.EncodeToString([]byte(text))), bytes.Join([][]byte{[]byte("["), encoded, []byte("]")}, nil),
	}}
}

func (p *placeholder) is(raw []byte) bool {
	if raw[0] != '"' && raw[0] != '[' && raw[0] != '{' {
		return false
	}
	for _, form := range p.forms {
		if bytes.Equal(raw, form) {
			return true
		}
	}
	return false
}

// sentCheck finds the before images of Postgres tables with REPLICA IDENTITY DEFAULT: the log holds their key alone, and
// Debezium fills the other columns with null, or with a zero or default where the column may not be null. Such an image
// has no column outside the key that holds anything, and all of those count as not sent.
type sentCheck struct {
	on     bool
	flat   bool  // the row stands without an envelope, beside fields of it
	filled bool  // a column outside the key holds something
	others []int // the wanted columns outside the key
}

func (r *reading) sentCheck(which int) sentCheck {
	return sentCheck{others: r.s.others[:0], flat: r.isFlat, on: which == rowBefore && r.table.connector == cdc.Postgres && len(r.key) > 0}
}

// see looks at one column of the image.
func (c *sentCheck) see(r *reading, name, value []byte) {
	if !c.on || c.filled || c.flat && bytes.HasPrefix(name, flatPrefix) {
		return
	}
	for _, k := range r.key {
		if k == string(name) {
			return
		}
	}
	if !isFiller(value) && !r.isFallback(name, value) {
		c.filled = true
		return
	}
	if i := r.column(name); i >= 0 {
		c.others = append(c.others, i)
		r.s.others = c.others
	}
}

// apply makes Absent what was not sent.
func (c *sentCheck) apply(row cdc.Row) {
	if !c.on || c.filled {
		return
	}
	for _, i := range c.others {
		row[i] = cdc.Value{}
	}
}

// isFallback reports whether a value is its column's default, as the schema gives it.
func (r *reading) isFallback(name, value []byte) bool {
	if r.schema == nil {
		return false
	}
	f := r.schema.row[string(name)]
	return f != nil && f.fallback != nil && bytes.Equal(f.fallback, value)
}

// isFiller reports whether a value is one that Debezium puts where it was given none.
func isFiller(value []byte) bool {
	switch string(value) {
	case "null", `""`, "0", "0.0", "false", "[]", "{}", `"{}"`, `"0"`, `"AA=="`, `"00:00:00Z"`, `{"scale":0,"value":"AA=="}`:
		return true
	}
	return bytes.HasPrefix(value, []byte(`"1970-01-01T00:00:00`))
}
