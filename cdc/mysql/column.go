package mysql

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// column is how one column of a table version is read.
type column struct {
	name       string
	kind       byte // MYSQL_TYPE_*, with ENUM and SET found out
	meta       uint16
	length     int // of STRING: declared bytes
	unsigned   bool
	charset    string   // binaryCharset for bytes; empty where there is none
	labels     []string // of ENUM and SET, in UTF-8
	labelErr   string   // why there are none
	special    string   // MariaDB's types that look like BINARY in the log: "uuid", "inet6", "inet4"
	compressed bool     // MariaDB's COMPRESSED
	doubt      string   // why its bytes may mean something else
	hidden     bool     // of a functional index: it is in the row, and no column of the table
}

// unpackString finds out what a STRING column is: its meta holds the real type, and two bits of the length.
func (c *column) unpackString() {
	hi, lo := byte(c.meta>>8), byte(c.meta)
	switch {
	case c.meta < 256:
		c.length = int(c.meta)
	case hi&0x30 != 0x30:
		c.length = int(lo) | int(hi&0x30^0x30)<<4
		c.kind = hi | 0x30
	default:
		c.length = int(lo)
		c.kind = hi
	}
}

func unclear(why string, args ...any) cdc.Value {
	return cdc.Value{Kind: cdc.Unclear, Why: fmt.Sprintf(why, args...)}
}

// value reads one value that is not NULL. It always reads exactly the value's bytes, whether or not it can tell what they
// mean; an error is a type whose size it does not know.
func (c *column) value(in *cursor, json *jsonDecoder) (cdc.Value, error) {
	switch c.kind {
	case mysql.MYSQL_TYPE_TINY:
		return c.integer(in, 1), nil
	case mysql.MYSQL_TYPE_SHORT:
		return c.integer(in, 2), nil
	case mysql.MYSQL_TYPE_INT24:
		return c.integer(in, 3), nil
	case mysql.MYSQL_TYPE_LONG:
		return c.integer(in, 4), nil
	case mysql.MYSQL_TYPE_LONGLONG:
		return c.integer(in, 8), nil
	case mysql.MYSQL_TYPE_NEWDECIMAL:
		return cdc.Value{Kind: cdc.Decimal, S: decimalText(in, int(c.meta>>8), int(c.meta&0xff))}, nil
	case mysql.MYSQL_TYPE_FLOAT:
		return float(float64(math.Float32frombits(uint32(in.le(4)))), 32), nil
	case mysql.MYSQL_TYPE_DOUBLE:
		return float(math.Float64frombits(in.le(8)), 64), nil
	case mysql.MYSQL_TYPE_BIT:
		bits := int(c.meta>>8)*8 + int(c.meta&0xff)
		return cdc.Value{Kind: cdc.Integer, S: strconv.FormatUint(in.be(bitmapBytes(bits)), 10)}, nil
	case mysql.MYSQL_TYPE_ENUM:
		return c.enum(in.le(int(c.meta & 0xff))), nil
	case mysql.MYSQL_TYPE_SET:
		return c.set(in.le(int(c.meta & 0xff))), nil
	case mysql.MYSQL_TYPE_STRING:
		return c.characters(in.prefixed(lengthBytes(c.length))), nil
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING:
		if c.compressed {
			return c.unpacked(in.prefixed(lengthBytes(int(c.meta) + 1))), nil
		}
		return c.characters(in.prefixed(lengthBytes(int(c.meta)))), nil
	case mysql.MYSQL_TYPE_BLOB:
		if c.compressed {
			return c.unpacked(in.prefixed(int(c.meta))), nil
		}
		return c.characters(in.prefixed(int(c.meta))), nil
	case mysql.MYSQL_TYPE_GEOMETRY, mysql.MYSQL_TYPE_VECTOR:
		return cdc.Value{Kind: cdc.Bytes, S: in.prefixed(int(c.meta))}, nil
	case mysql.MYSQL_TYPE_JSON:
		text, err := json.text(in.prefixed(int(c.meta)))
		if err != nil {
			return unclear("binary JSON that cannot be read: %v", err), nil
		}
		return cdc.Value{Kind: cdc.JSON, S: text}, nil
	}
	return c.temporal(in)
}

func (c *column) temporal(in *cursor) (cdc.Value, error) {
	v := cdc.Value{Kind: cdc.Text}
	dec := int(c.meta)
	switch c.kind {
	case mysql.MYSQL_TYPE_TIMESTAMP2:
		v.S = timestamp2(in, dec)
	case mysql.MYSQL_TYPE_DATETIME2:
		v.S = datetime2(in, dec)
	case mysql.MYSQL_TYPE_TIME2:
		v.S = time2(in, dec)
	case mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE:
		v.S = date(in)
	case mysql.MYSQL_TYPE_YEAR:
		if v.S = year(in); v.S != "0000" { // which is no number as JSON writes it
			v.Kind = cdc.Integer
		}
	case mysql.MYSQL_TYPE_TIMESTAMP:
		v.S = instant(in.le(4))
	case mysql.MYSQL_TYPE_DATETIME:
		v.S = oldDatetime(in)
	case mysql.MYSQL_TYPE_TIME:
		v.S = oldTime(in)
	default:
		return v, fmt.Errorf("type %d of the binary log is not known", c.kind)
	}
	return v, nil
}

func lengthBytes(declared int) int {
	if declared < 256 {
		return 1
	}
	return 2
}

func (c *column) integer(in *cursor, n int) cdc.Value {
	v := in.le(n)
	if c.unsigned {
		return cdc.Value{Kind: cdc.Integer, S: in.number(v, false)}
	}
	s := signed(v, n)
	return cdc.Value{Kind: cdc.Integer, S: in.number(uint64(max(s, -s)), s < 0)}
}

// float is the shortest text that reads back as the same number, with an exponent only where the plain form would be long.
func float(v float64, bits int) cdc.Value {
	format := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return cdc.Value{Kind: cdc.Float, S: strconv.FormatFloat(v, format, -1, bits)}
}

// unpacked is the value of a COMPRESSED column.
func (c *column) unpacked(s string) cdc.Value {
	s, err := uncompressed(s)
	if err != nil {
		return unclear("%v", err)
	}
	return c.characters(s)
}

// characters is the value of a column of text or of bytes.
func (c *column) characters(s string) cdc.Value {
	if c.doubt != "" {
		return unclear("%s", c.doubt)
	}
	if c.charset == binaryCharset {
		if c.special != "" {
			return specialText(c.special, s)
		}
		// The log leaves out the zero bytes at the end of BINARY(n). CHAR never gets here, whatever its collation.
		if c.kind == mysql.MYSQL_TYPE_STRING && len(s) < c.length {
			s += strings.Repeat("\x00", c.length-len(s))
		}
		return cdc.Value{Kind: cdc.Bytes, S: s}
	}
	cs := charsets[c.charset]
	if cs == nil {
		if c.charset == "" {
			return unclear("a text whose charset is not known")
		}
		return unclear("a text in charset %s, which cannot be read", c.charset)
	}
	text, ok := cs.text(s)
	if !ok {
		return unclear("bytes that are no text in charset %s", c.charset)
	}
	return cdc.Value{Kind: cdc.Text, S: text}
}

// enum is a label by its number. 0 is the empty string that an invalid value leaves.
func (c *column) enum(n uint64) cdc.Value {
	switch {
	case n == 0:
		return cdc.Value{Kind: cdc.Text}
	case n <= uint64(len(c.labels)):
		return cdc.Value{Kind: cdc.Text, S: c.labels[n-1]}
	}
	return c.unknownLabel(n)
}

// set is the labels of the bits, in the order of their definition.
func (c *column) set(bits uint64) cdc.Value {
	if bits == 0 {
		return cdc.Value{Kind: cdc.Text}
	}
	if bits>>1>>(max(len(c.labels), 1)-1) != 0 || len(c.labels) == 0 {
		return c.unknownLabel(bits)
	}
	var on []string
	for i, label := range c.labels {
		if bits&(1<<i) != 0 {
			on = append(on, label)
		}
	}
	return cdc.Value{Kind: cdc.Text, S: strings.Join(on, ",")}
}

func (c *column) unknownLabel(n uint64) cdc.Value {
	if c.labelErr != "" {
		return unclear("label %d: %s", n, c.labelErr)
	}
	return unclear("label %d, but only %d are known", n, len(c.labels))
}
