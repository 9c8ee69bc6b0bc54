package mysql

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// MariaDB's types of columns with the attribute COMPRESSED, whose numbers MySQL does not use, and the driver does not know.
const (
	mariaBlobCompressed    = 140
	mariaVarcharCompressed = 141
)

// uncompressTypes turns a table map with COMPRESSED columns into the one that it would be without, and gives which columns they
// are; nil for none. The driver has read the lengths of all columns behind the first of them wrong: they are read again here,
// from the event's body, behind the names and types.
func uncompressTypes(e *replication.TableMapEvent, body []byte) ([]bool, error) {
	var compressed []bool
	for i, t := range e.ColumnType {
		if t == mariaBlobCompressed || t == mariaVarcharCompressed {
			if compressed == nil {
				compressed = make([]bool, len(e.ColumnType))
			}
			compressed[i] = true
		}
	}
	if compressed == nil {
		return nil, nil
	}
	in := &cursor{s: string(body)}
	in.take(6 + 2) // number and flags
	in.take(int(in.le(1)) + 1)
	in.take(int(in.le(1)) + 1)
	n := int(in.lenenc())
	types := []byte(in.take(n))
	in.lenenc() // the lengths' own
	e.ColumnMeta = make([]uint16, n)
	for i, t := range types {
		switch t {
		case mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_NEWDECIMAL:
			e.ColumnMeta[i] = uint16(in.be(2))
		case mysql.MYSQL_TYPE_VAR_STRING, mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_BIT, mariaVarcharCompressed:
			e.ColumnMeta[i] = uint16(in.le(2))
		case mysql.MYSQL_TYPE_BLOB, mysql.MYSQL_TYPE_DOUBLE, mysql.MYSQL_TYPE_FLOAT, mysql.MYSQL_TYPE_GEOMETRY, mysql.MYSQL_TYPE_TIME2,
			mysql.MYSQL_TYPE_DATETIME2, mysql.MYSQL_TYPE_TIMESTAMP2, mariaBlobCompressed:
			e.ColumnMeta[i] = uint16(in.le(1))
		}
		switch t {
		case mariaBlobCompressed:
			types[i] = mysql.MYSQL_TYPE_BLOB
		case mariaVarcharCompressed:
			types[i] = mysql.MYSQL_TYPE_VARCHAR
			e.ColumnMeta[i]-- // the byte before the value
		}
	}
	if e.ColumnType = types; in.short {
		return nil, errors.New("a table map event ends within its types")
	}
	return compressed, nil
}

// maxUncompressed is the largest value that a column can hold.
const maxUncompressed = 1 << 32

// uncompressed reads a value of a COMPRESSED column: nothing for the empty one, else a byte that says how the rest is stored.
// 0: as it is. Else its highest four bits are the method, 8 for zlib; then one for a stream without zlib's own frame; and the
// lowest three the number of bytes that hold the value's length, highest first (sql/field_comp.cc of MariaDB).
func uncompressed(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	in := &cursor{s: s}
	head := in.le(1)
	if head == 0 {
		return s[1:], nil
	}
	size := in.be(int(head & 7))
	if head>>4 != 8 || in.short || size > maxUncompressed {
		return "", fmt.Errorf("a compressed value that begins with %#x", head)
	}
	var r io.ReadCloser
	data := bytes.NewReader([]byte(s[in.pos:]))
	if head&8 != 0 {
		r = flate.NewReader(data)
	} else {
		var err error
		if r, err = zlib.NewReader(data); err != nil {
			return "", err
		}
	}
	var out bytes.Buffer
	if _, err := io.Copy(&out, io.LimitReader(r, int64(size)+1)); err != nil {
		return "", err
	}
	if uint64(out.Len()) != size {
		return "", fmt.Errorf("a compressed value of %d bytes says that it has %d", out.Len(), size)
	}
	return out.String(), r.Close()
}
