package mapping

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// binaryBase64 is the one way that binary_keys knows: the base64 flag of the meta protocol.
const binaryBase64 = "base64"

// binaryKeys reads how the clients of the file's pools send a key that holds a space or a control byte.
func (r *fileReader) binaryKeys(n *yaml.Node) {
	s, ok := r.text(n, "binary_keys")
	if ok && s != binaryBase64 {
		r.errorf(n, didYouMean(s, []string{binaryBase64}), "binary_keys must be base64, not %q", s)
		return
	}
	r.f.Base64Keys, r.f.binary = ok, n
}

// checkBinaryKeys refuses what contradicts itself: the classic protocol cannot say such a key.
func (r *fileReader) checkBinaryKeys() {
	if r.f.Base64Keys && r.f.Readers == ReadersClassic {
		r.errorf(r.f.binary, "write readers: meta if they speak it, or leave binary_keys out",
			"binary_keys is for readers that speak the meta protocol, and the file's are classic")
	}
}

// CheckClassic says which files cannot work where nodes are spoken to in the classic protocol: it cannot say the keys that their
// binary_keys are about.
func (s *Set) CheckClassic() (problems []Problem) {
	for _, f := range s.files {
		if f.Base64Keys {
			problems = append(problems, Problem{File: f.Name, Line: f.binary.Line, Col: f.binary.Column, Severity: SeverityError,
				What: "the configuration has cache.protocol: classic, which cannot delete keys with spaces or control bytes: their changes are parked",
				Hint: "set cache.protocol: meta if the nodes speak it, or leave binary_keys out"})
		}
	}
	return problems
}

// binaryKeys compares how keys with spaces and control bytes are sent.
func (d *diff) binaryKeys(o, p placed) {
	if o.t.Base64 == p.t.Base64 || p.alwaysPlain() {
		return
	}
	if p.t.Base64 {
		d.note("binary_keys: none -> base64")
		d.widen("earlier changes deleted no key with a space or a control byte")
		return
	}
	d.note("binary_keys: base64 -> none")
	d.narrow("changes no longer delete its keys with a space or a control byte")
}

// alwaysPlain reports whether no key of the template can have a space or a control byte.
func (p placed) alwaysPlain() bool {
	for _, part := range p.t.parts {
		if slices.ContainsFunc([]byte(part.literal), unfit) || part.column != "" && !part.alwaysPlain(p.m.Types[part.column]) {
			return false
		}
	}
	return true
}

func (p part) alwaysPlain(declared string) bool {
	if len(p.filters) == 0 {
		return isNumber(declared)
	}
	last := p.filters[len(p.filters)-1].filterType
	return last.name == "urlencode" || last.gives != 0 && last.gives&^(typeLabel|typeInteger) == 0
}

// testKeys reads the keys that a test wants: a text, or, where bytes that are no text are among them, the pieces that make the key:
// ["blob:", {hex: 00ff}].
func (r *reader) testKeys(list *yaml.Node, what string) (keys []string) {
	var lines []int
	for _, n := range r.list(list, what, true) {
		key, ok := r.testKey(n)
		if !ok {
			continue
		}
		if i := slices.Index(keys, key); i >= 0 {
			r.errorf(n, "", "key %s is doubled: it stands in line %d already", strconv.Quote(key), lines[i])
			continue
		}
		keys, lines = append(keys, key), append(lines, n.Line)
	}
	return keys
}

func (r *reader) testKey(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.SequenceNode {
		return r.text(n, "key")
	}
	var key strings.Builder
	for _, piece := range r.list(n, "a key in pieces", false) {
		var s string
		var ok bool
		if isHex(piece) {
			s, ok = r.hexBytes(piece, "the key")
		} else {
			s, ok = r.text(piece, "a piece of a key")
		}
		if !ok {
			return "", false
		}
		key.WriteString(s)
	}
	if key.Len() == 0 && len(n.Content) > 0 {
		r.errorf(n, "", "a key is empty")
	}
	return key.String(), key.Len() > 0
}

// isHex reports whether n is {hex: …}.
func isHex(n *yaml.Node) bool {
	return n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "hex"
}

func (r *reader) hexBytes(n *yaml.Node, of string) (string, bool) {
	b, err := hex.DecodeString(n.Content[1].Value)
	if err != nil {
		r.errorf(n.Content[1], "", "the bytes of %s are not hexadecimal: %q", of, n.Content[1].Value)
	}
	return string(b), err == nil
}

// ShowKey is a key as a file's tests may have it: as it is, in quotes with escapes where it has a space or a control byte, and in
// pieces where it has bytes that are no UTF-8.
func ShowKey(key string) string {
	if !utf8.ValidString(key) {
		return "[" + strings.Join(pieces(key), ", ") + "]"
	}
	if slices.ContainsFunc([]byte(key), unfit) {
		return strconv.Quote(key)
	}
	return key
}

// pieces takes a key apart into texts in quotes and bytes that are no UTF-8.
func pieces(key string) (all []string) {
	for len(key) > 0 {
		n := 0
		for _, c := range key {
			if c == utf8.RuneError && !strings.HasPrefix(key[n:], "\ufffd") {
				break
			}
			n += utf8.RuneLen(c)
		}
		if n > 0 {
			all = append(all, strconv.Quote(key[:n]))
			key = key[n:]
			continue
		}
		for n < len(key) {
			if c, size := utf8.DecodeRuneInString(key[n:]); c != utf8.RuneError || size != 1 {
				break
			}
			n++
		}
		all = append(all, "{hex: "+hex.EncodeToString([]byte(key[:n]))+"}")
		key = key[n:]
	}
	return all
}
