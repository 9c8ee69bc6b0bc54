package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// texts makes a change's texts: views of the record where they stand there as they are read, and else of b, where they are
// written. A view of b stays what it was until reset, also where b had to grow: then it lies in b's predecessor.
type texts struct{ b []byte }

func (t *texts) reset() {
	if t.b = t.b[:0]; cap(t.b) > maxKept {
		t.b = nil
	}
}

// view is b as a text. It lives as long as b stays what it is.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// since is what was written from a place in t.b on. Who appends to it gets a copy.
func (t *texts) since(start int) []byte { return slices.Clip(t.b[start:]) }

func (t *texts) textSince(start int) string { return view(t.b[start:]) }

// of is the text of a JSON string, or of anything else as it stands; empty for null.
func (t *texts) of(raw []byte) string {
	if isNull(raw) {
		return ""
	}
	if raw[0] != '"' {
		return view(raw)
	}
	text, _ := t.unquote(raw)
	return view(text)
}

// unquote returns the text of a JSON string, which lies in raw itself where nothing is escaped. ok is false for half a
// surrogate pair, which is no text.
func (t *texts) unquote(raw []byte) (text []byte, ok bool) {
	in := raw[1 : len(raw)-1]
	first := bytes.IndexByte(in, '\\')
	if first < 0 {
		return in, true
	}
	start := len(t.b)
	t.b, ok = appendUnescaped(append(t.b, in[:first]...), in[first:])
	return t.since(start), ok
}

func (t *texts) uint(n uint64) string {
	start := len(t.b)
	t.b = strconv.AppendUint(t.b, n, 10)
	return t.textSince(start)
}

var errNotBase64 = errors.New("not base64 text")

// base64 decodes a JSON string of base64, plain or URL-safe; nil for null.
func (t *texts) base64(raw []byte) ([]byte, error) {
	if isNull(raw) {
		return nil, nil
	}
	if raw[0] != '"' {
		return nil, errNotBase64
	}
	text, ok := t.unquote(raw)
	if !ok {
		return nil, errNotBase64
	}
	enc := base64.StdEncoding
	if bytes.ContainsAny(text, "-_") {
		enc = base64.URLEncoding
	}
	start := len(t.b)
	var err error
	if t.b, err = enc.AppendDecode(t.b, text); err != nil {
		return nil, errNotBase64
	}
	return t.since(start), nil
}

var errNotHex = errors.New("not hex text (the source's binary says hex)")

func (t *texts) hex(raw []byte) ([]byte, error) {
	if raw[0] != '"' {
		return nil, errNotHex
	}
	text, ok := t.unquote(raw)
	if !ok {
		return nil, errNotHex
	}
	start := len(t.b)
	var err error
	if t.b, err = hex.AppendDecode(t.b, text); err != nil {
		return nil, errNotHex
	}
	return t.since(start), nil
}

// lsn is a place in Postgres's log in its own form, X/X.
func (t *texts) lsn(n uint64) string {
	start := len(t.b)
	t.b = strconv.AppendUint(t.b, n>>32, 16)
	t.b = strconv.AppendUint(append(t.b, '/'), n&(1<<32-1), 16)
	for i, c := range t.b[start:] {
		if c >= 'a' {
			t.b[start+i] = c - 'a' + 'A'
		}
	}
	return t.textSince(start)
}

// textOf is a text of its own: texts.of for what is kept.
func textOf(raw []byte) string {
	var t texts
	return strings.Clone(t.of(raw))
}
