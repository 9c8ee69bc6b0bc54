package mysql

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// charset is how a server's charset is read.
type charset struct {
	name   string
	width  int  // bytes of its longest character
	ascii  bool // a text of bytes below 0x80 alone is ASCII
	decode func(string) (string, bool)
	unlike []span // characters that the servers read otherwise than decode does: they are refused
}

// span is a range of characters, each as the big-endian number of its bytes.
type span struct{ from, to uint64 }

// binaryCharset is the charset of columns that hold bytes.
const binaryCharset = "binary"

// charsets are those that we can read.
var charsets = map[string]*charset{}

func init() {
	// Both EUC charsets: what other makers added is read differently by everybody.
	japaneseUnlike := []span{{0xa1c1, 0xa1c2}, {0xa1dd, 0xa1dd}, {0xa1f1, 0xa1f2}, {0xa2cc, 0xa2cc}, {0xf9a1, 0xfcfe},
		{0x8fa2c3, 0x8fa2c3}}
	utf16be := unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	for _, c := range []*charset{
		{"utf8mb4", 4, true, valid, nil},
		{"utf8mb3", 3, true, valid, nil},
		{"utf8", 3, true, valid, nil},
		{"ascii", 1, true, none, nil},
		{"latin1", 1, true, latin1, nil},
		{"latin2", 1, true, with(charmap.ISO8859_2), nil},
		{"latin5", 1, true, with(charmap.ISO8859_9), nil},
		{"latin7", 1, true, with(charmap.ISO8859_13), nil},
		{"greek", 1, true, with(charmap.ISO8859_7), []span{{0xa1, 0xa2}}},
		{"hebrew", 1, true, with(charmap.ISO8859_8), []span{{0xaf, 0xaf}}},
		{"cp1250", 1, true, with(charmap.Windows1250), nil},
		{"cp1251", 1, true, with(charmap.Windows1251), nil},
		{"cp1256", 1, true, with(charmap.Windows1256), nil},
		{"cp1257", 1, true, with(charmap.Windows1257), nil},
		{"cp850", 1, true, with(charmap.CodePage850), nil},
		{"cp852", 1, true, with(charmap.CodePage852), nil},
		{"cp866", 1, true, with(charmap.CodePage866), []span{{0xfc, 0xfd}}},
		{"koi8r", 1, true, with(charmap.KOI8R), nil},
		{"koi8u", 1, true, with(charmap.KOI8U), []span{{0x95, 0x95}, {0xae, 0xae}, {0xbe, 0xbe}}},
		{"macroman", 1, true, with(charmap.Macintosh), nil},
		{"tis620", 1, true, with(charmap.Windows874), []span{{0x80, 0x97}}},
		{"gbk", 2, true, with(simplifiedchinese.GBK), nil},
		{"gb2312", 2, true, with(simplifiedchinese.GBK), []span{{0xa1a4, 0xa1a4}, {0xa1aa, 0xa1aa}}},
		{"gb18030", 4, true, with(simplifiedchinese.GB18030), []span{{0xa3a0, 0xa3a0}, {0x8135f437, 0x8135f437}}},
		{"big5", 2, true, with(traditionalchinese.Big5), []span{{0xa145, 0xa145}, {0xa14e, 0xa14e}, {0xa1c2, 0xa1c2}, {0xa1e3, 0xa1e3}, {0xa1f2, 0xa1f3}, {0xa241, 0xa242}, {0xa244, 0xa244}, {0xa246, 0xa247}, {0xc6a1, 0xc7fc}}},
		{"euckr", 2, true, with(korean.EUCKR), nil},
		{"sjis", 2, true, with(japanese.ShiftJIS), []span{{0x8160, 0x8161}, {0x817c, 0x817c}, {0x8191, 0x8192}, {0x81ca, 0x81ca}}},
		{"cp932", 2, true, with(japanese.ShiftJIS), nil},
		{"ujis", 3, true, with(japanese.EUCJP), japaneseUnlike},
		{"eucjpms", 3, true, with(japanese.EUCJP), japaneseUnlike},
		{"ucs2", 2, false, with(utf16be), nil},
		{"utf16", 4, false, with(utf16be), nil},
		{"utf16le", 4, false, with(unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)), nil},
		{"utf32", 4, false, with(utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)), nil},
	} {
		charsets[c.name] = c
	}
}

// text gives bytes of the charset as UTF-8, or says that they are none.
func (c *charset) text(s string) (string, bool) {
	if c.ascii && isASCII(s) {
		return s, true
	}
	if c.unlike != nil && c.hasUnlike(s) {
		return "", false
	}
	return c.decode(s)
}

func (c *charset) hasUnlike(s string) bool {
	for s != "" {
		n := min(c.length(s), len(s))
		ch := bigEndian(s[:n])
		for _, u := range c.unlike {
			if u.from <= ch && ch <= u.to {
				return true
			}
		}
		s = s[n:]
	}
	return false
}

// length is the number of bytes of the first character of s, in the charsets that have unlike characters.
func (c *charset) length(s string) int {
	switch b := s[0]; {
	case b < utf8.RuneSelf, c.width == 1, c.name == "sjis" && 0xa1 <= b && b <= 0xdf:
		return 1
	case c.width == 3 && b == 0x8f, c.width == 4 && len(s) > 1 && '0' <= s[1] && s[1] <= '9':
		return c.width
	}
	return 2
}

func valid(s string) (string, bool) { return s, utf8.ValidString(s) }

// none is for ASCII, where whatever is not plain is nothing.
func none(string) (string, bool) { return "", false }

// with decodes by a table of golang.org/x/text, which puts U+FFFD in the place of what it cannot read. A text that holds one
// itself is refused with the others.
func with(enc encoding.Encoding) func(string) (string, bool) {
	return func(s string) (string, bool) {
		out, err := enc.NewDecoder().String(s)
		return out, err == nil && !strings.ContainsRune(out, utf8.RuneError)
	}
}

// latin1 is cp1252 in these servers, with control characters for the five bytes that cp1252 leaves free.
func latin1(s string) (string, bool) {
	out := make([]byte, 0, 2*len(s))
	for i := 0; i < len(s); i++ {
		r := charmap.Windows1252.DecodeByte(s[i])
		if r == utf8.RuneError {
			r = rune(s[i])
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out), true
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
