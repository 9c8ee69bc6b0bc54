package memcache

import (
	"bytes"

	"invalidator/sink"
)

// parseDumpLine takes a line of a dump apart, without its line feed, and decodes the key in place. ok is false where it is not such a line from
// its first byte to its last: a server that writes a part of its buffer twice leaves such that begin well.
//
//	key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63
func parseDumpLine(line []byte) (key []byte, cas uint64, ok bool) {
	f := fields{rest: bytes.TrimSuffix(line, []byte("\r"))}
	key = decodeKey(f.next("key="))
	exp := f.next("exp=")
	if len(exp) > 0 && exp[0] == '-' {
		exp = exp[1:]
	}
	f.number(exp)
	f.number(f.next("la="))
	cas = f.number(f.next("cas="))
	fetched := f.next("fetch=")
	f.bad = f.bad || string(fetched) != "yes" && string(fetched) != "no"
	f.number(f.next("cls="))
	f.number(f.next("size="))
	for len(f.rest) > 0 { // newer servers say more
		f.other()
	}
	return key, cas, !f.bad && len(key) > 0
}

// fields is what is left of a line.
type fields struct {
	rest []byte
	bad  bool
}

// next takes the next field, which must have that name, and returns its value.
func (f *fields) next(name string) []byte {
	if len(f.rest) < len(name) || string(f.rest[:len(name)]) != name {
		f.bad, f.rest = true, nil
		return nil
	}
	value := f.rest[len(name):]
	end := bytes.IndexByte(value, ' ')
	if end < 0 {
		f.rest = nil
		return value
	}
	f.rest = value[end+1:]
	f.bad = f.bad || len(f.rest) == 0
	return value[:end]
}

// other takes a field of any name but those that a line begins with.
func (f *fields) other() {
	name := f.rest[:bytes.IndexByte(f.rest, '=')+1]
	switch string(name) {
	case "", "=", "key=", "exp=", "la=", "cas=", "fetch=", "cls=", "size=":
		f.bad, f.rest = true, nil
		return
	}
	f.word(name[:len(name)-1])
	f.word(f.next(string(name)))
}

// word looks at what other fields have: small letters, digits, - and _.
func (f *fields) word(w []byte) {
	for _, b := range w {
		f.bad = f.bad || (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_'
	}
	f.bad = f.bad || len(w) == 0
}

// number reads one of up to 20 digits.
func (f *fields) number(digits []byte) (n uint64) {
	for _, d := range digits {
		if d < '0' || d > '9' || n > (1<<64-1)/10 || n == (1<<64-1)/10 && d > '5' {
			f.bad = true
			return 0
		}
		n = n*10 + uint64(d-'0')
	}
	f.bad = f.bad || len(digits) == 0
	return n
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

// decodeKey decodes a key in place; nil where it is none.
func decodeKey(text []byte) []byte {
	to := 0
	for from := 0; from < len(text); from++ {
		b := text[from]
		if b == '%' {
			if from+2 >= len(text) {
				return nil
			}
			high, low := keyBytes[text[from+1]], keyBytes[text[from+2]]
			if (high|low)&noHex != 0 {
				return nil
			}
			b, from = high<<4|low&0xf, from+2
		} else if keyBytes[b]&itself == 0 {
			return nil
		}
		text[to] = b
		to++
	}
	if to > sink.MaxKeyLen {
		return nil
	}
	return text[:to]
}
