package cdc

import "strings"

// Kind says what a Value is. It is what a filter may ask about; the text does not depend on it except for Bytes.
type Kind uint8

const (
	Absent    Kind = iota // not in the image: unchanged TOAST, minimal row image, a column the envelope lacks
	Null                  // SQL NULL
	Bool                  // text is the source's own: "t" and "f" for Postgres, "1" and "0" for MySQL
	Integer               // decimal digits, any size, maybe with a leading '-'
	Decimal               // exact digits with the declared scale: "500.00"; also NaN and Infinity of Postgres
	Float                 // the shortest text at the column's own width; refused in a key
	Text                  // UTF-8; also dates, times, enum and set labels, UUIDs, arrays: as SELECT shows them
	Bytes                 // S holds the raw bytes; Text() shows them as the source's SELECT would
	Bytea                 // as Bytes, of Postgres: Text() is \x and lower-case hex
	JSON                  // a whole document as the source wrote it; refused in a key
	Unclear               // S is what the envelope said, but not what it means (a decimal without its scale); Why says
	Ambiguous             // the envelope leaves a few texts open (an integer below zero that may be unsigned): Candidates
)

// candidateSep stands between the texts of an Ambiguous value: no text that a key is made of can hold it.
const candidateSep = "\x00"

// MaybeOneOf is a value whose text is one of texts, the likeliest first. Whoever renders it renders all of them, since one
// delete too many is harmless.
func MaybeOneOf(texts ...string) Value {
	if len(texts) == 1 {
		return Value{Kind: Text, S: texts[0]}
	}
	return Value{Kind: Ambiguous, S: strings.Join(texts, candidateSep)}
}

// Candidates are all texts that a Known value may have: one, but for Kind Ambiguous.
func (v Value) Candidates() []string {
	switch {
	case v.Kind == Ambiguous:
		return strings.Split(v.S, candidateSep)
	case v.Known():
		return []string{v.Text()}
	}
	return nil
}

// Value is one column's value. The zero Value is Absent. It is immutable and small enough to copy.
type Value struct {
	Kind Kind
	S    string
	Why  string // Kind Unclear: what is missing, for an error: "base64 decimal without a scale". Of a Known value: a doubt (Doubtful)
}

// Known reports whether there is a text: the value was sent, is not NULL, and its meaning is clear.
func (v Value) Known() bool { return v.Kind != Absent && v.Kind != Null && v.Kind != Unclear }

// Doubtful reports whether a Known value may have been NULL instead: it is rendered all the same, since one delete too many is
// harmless, and no condition may rely on it.
func (v Value) Doubtful() bool { return v.Why != "" && v.Known() }

// Text is the canonical text, by TYPES.md: of an Ambiguous value the likeliest one. It is empty for a value that is not
// Known.
func (v Value) Text() string {
	switch v.Kind {
	case Absent, Null, Unclear:
		return ""
	case Bytea:
		return byteaText(v.S)
	case Ambiguous:
		text, _, _ := strings.Cut(v.S, candidateSep)
		return text
	}
	return v.S
}

// Equal reports whether two values are known to be the same. Absent, Unclear and Doubtful values equal nothing.
func (v Value) Equal(w Value) bool {
	if v.Kind == Absent || v.Kind == Unclear || w.Kind == Absent || w.Kind == Unclear {
		return false
	}
	return !v.Doubtful() && !w.Doubtful() && (v.Kind == Null) == (w.Kind == Null) && v.S == w.S
}

func byteaText(s string) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 2, 2+2*len(s))
	b[0], b[1] = '\\', 'x'
	for i := 0; i < len(s); i++ {
		b = append(b, digits[s[i]>>4], digits[s[i]&15])
	}
	return string(b)
}
