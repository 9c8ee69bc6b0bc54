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
	name  string
	width int               // bytes of its longest character
	ascii bool              // bytes below 0x80 are always ASCII characters
	enc   encoding.Encoding // nil: it is UTF-8, or a part of it
}

// binaryCharset is the charset of columns that hold bytes.
const binaryCharset = "binary"

// charsets are those that we can read. latin1 is cp1252 in these servers.
var charsets = map[string]*charset{}

func init() {
	utf16be := unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	for _, c := range []*charset{
		{"utf8mb4", 4, true, nil},
		{"utf8mb3", 3, true, nil},
		{"utf8", 3, true, nil},
		{"ascii", 1, true, nil},
		{"latin1", 1, true, charmap.Windows1252},
		{"latin2", 1, true, charmap.ISO8859_2},
		{"latin5", 1, true, charmap.ISO8859_9},
		{"latin7", 1, true, charmap.ISO8859_13},
		{"greek", 1, true, charmap.ISO8859_7},
		{"hebrew", 1, true, charmap.ISO8859_8},
		{"cp1250", 1, true, charmap.Windows1250},
		{"cp1251", 1, true, charmap.Windows1251},
		{"cp1256", 1, true, charmap.Windows1256},
		{"cp1257", 1, true, charmap.Windows1257},
		{"cp850", 1, true, charmap.CodePage850},
		{"cp852", 1, true, charmap.CodePage852},
		{"cp866", 1, true, charmap.CodePage866},
		{"koi8r", 1, true, charmap.KOI8R},
		{"koi8u", 1, true, charmap.KOI8U},
		{"macroman", 1, true, charmap.Macintosh},
		{"tis620", 1, true, charmap.Windows874},
		{"gbk", 2, true, simplifiedchinese.GBK},
		{"gb2312", 2, true, simplifiedchinese.GBK},
		{"gb18030", 4, true, simplifiedchinese.GB18030},
		{"big5", 2, true, traditionalchinese.Big5},
		{"euckr", 2, true, korean.EUCKR},
		{"sjis", 2, true, japanese.ShiftJIS},
		{"cp932", 2, true, japanese.ShiftJIS},
		{"ujis", 3, true, japanese.EUCJP},
		{"eucjpms", 3, true, japanese.EUCJP},
		{"ucs2", 2, false, utf16be},
		{"utf16", 4, false, utf16be},
		{"utf16le", 4, false, unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)},
		{"utf32", 4, false, utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)},
	} {
		charsets[c.name] = c
	}
}

// text gives bytes of the charset as UTF-8, or says that they are none.
func (c *charset) text(s string) (string, bool) {
	if c.ascii && isASCII(s) {
		return s, true
	}
	if c.enc == nil {
		return s, c.name != "ascii" && utf8.ValidString(s)
	}
	out, err := c.enc.NewDecoder().String(s)
	// A decoder puts U+FFFD in the place of what it cannot read. A text that holds one itself is refused with the others.
	return out, err == nil && !strings.ContainsRune(out, utf8.RuneError)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
