package memcache

import (
	"bytes"
	"math"
	"math/bits"

	"invalidator/sink"
)

// parseDumpLine takes a line of a dump apart, without its line feed, and decodes the key in place. ok is false where it is not such a line from
// its first byte to its last: a server that writes a part of its buffer twice leaves such that begin well.
//
//	key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63
func parseDumpLine(line []byte) (key []byte, cas uint64, ok bool) {
	f := fields{line: bytes.TrimSuffix(line, []byte("\r"))}
	f.name("key=")
	key = f.key()
	f.name("exp=")
	f.minus()
	f.number()
	f.name("la=")
	f.number()
	f.name("cas=")
	cas = f.number()
	f.name("fetch=")
	f.yesOrNo()
	f.name("cls=")
	f.number()
	f.name("size=")
	f.number()
	for f.at < len(f.line) { // newer servers say more
		f.other()
	}
	return key, cas, !f.bad && len(key) > 0
}

// fields goes through a line. What is not as it should be leaves it at the line's end, where nothing more is.
type fields struct {
	line []byte
	at   int
	bad  bool
}

func (f *fields) fail() { f.at, f.bad = len(f.line), true }

// name passes over a field's name.
func (f *fields) name(name string) {
	if end := f.at + len(name); end <= len(f.line) && string(f.line[f.at:end]) == name {
		f.at = end
		return
	}
	f.fail()
}

// end ends a field: at a space with something behind it, or at the line's end.
func (f *fields) end(at int) {
	switch {
	case f.bad:
	case at == len(f.line):
		f.at = at
	case f.line[at] == ' ' && at+1 < len(f.line):
		f.at = at + 1
	default:
		f.fail()
	}
}

func (f *fields) minus() {
	if f.at < len(f.line) && f.line[f.at] == '-' {
		f.at++
	}
}

// surely is up to how many digits every number is one of 64 bits.
const surely = 19

// number reads the digits that a field has.
func (f *fields) number() (n uint64) {
	line, at := f.line, f.at
	for ; at < len(line) && line[at]-'0' <= 9; at++ {
		n = n*10 + uint64(line[at]-'0')
	}
	if digits := at - f.at; digits == 0 || digits > surely && !fits(line[f.at:at]) {
		f.fail()
	}
	f.end(at)
	return n
}

// fits says whether digits are a number of 64 bits.
func fits(digits []byte) bool {
	n := uint64(0)
	for _, d := range digits {
		high, low := bits.Mul64(n, 10)
		if high > 0 || low > math.MaxUint64-uint64(d-'0') {
			return false
		}
		n = low + uint64(d-'0')
	}
	return true
}

func (f *fields) yesOrNo() {
	switch rest := f.line[f.at:]; {
	case bytes.HasPrefix(rest, []byte("no")):
		f.end(f.at + 2)
	case bytes.HasPrefix(rest, []byte("yes")):
		f.end(f.at + 3)
	default:
		f.fail()
	}
}

// other passes over a field of any name but those that a line begins with.
func (f *fields) other() {
	rest := f.line[f.at:]
	name := rest[:bytes.IndexByte(rest, '=')+1]
	switch string(name) {
	case "", "=", "key=", "exp=", "la=", "cas=", "fetch=", "cls=", "size=":
		f.fail()
		return
	}
	value := rest[len(name):]
	if end := bytes.IndexByte(value, ' '); end >= 0 {
		value = value[:end]
	}
	if !isWord(name[:len(name)-1]) || !isWord(value) {
		f.fail()
	}
	f.end(f.at + len(name) + len(value))
}

// isWord says whether it is what other fields have: small letters, digits, - and _.
func isWord(w []byte) bool {
	for _, b := range w {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return len(w) > 0
}

// What a byte of a key is as the server writes it: a hexadecimal digit's value and beside it whether it stands for itself.
const (
	itself = 1 << 4 // letters, digits, - . _ ~
	noHex  = 1 << 5
)

var keyBytes = func() (kinds [256]uint8) {
	for b := range kinds {
		kinds[b] = noHex
		switch c := byte(b); {
		case c >= '0' && c <= '9':
			kinds[b] = itself | (c - '0')
		case c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
			kinds[b] = itself | ((c | 0x20) - 'a' + 10)
		case c >= 'g' && c <= 'z', c >= 'G' && c <= 'Z', c == '-', c == '.', c == '_', c == '~':
			kinds[b] = itself | noHex
		}
	}
	return kinds
}()

// key decodes a key in place.
func (f *fields) key() []byte {
	text := f.line[f.at:]
	from, to := 0, 0
	for from < len(text) {
		b := text[from]
		if keyBytes[b]&itself != 0 {
			text[to] = b
			from, to = from+1, to+1
			continue
		}
		if b != '%' || from+2 >= len(text) {
			break
		}
		high, low := keyBytes[text[from+1]], keyBytes[text[from+2]]
		if (high|low)&noHex != 0 {
			break
		}
		text[to] = high<<4 | low&0xf
		from, to = from+3, to+1
	}
	if to > sink.MaxKeyLen {
		f.fail()
	}
	f.end(f.at + from)
	return text[:to]
}
