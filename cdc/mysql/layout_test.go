package mysql

import (
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// Old servers give YEAR no sign bit, newer ones do; the number of bits says which, or else nothing does.
func TestSignsBehindAYear(t *testing.T) {
	const tiny, year = mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_YEAR
	for _, tc := range []struct {
		what  string
		types []byte
		bits  []byte
		want  []bool // nil: it cannot be told
	}{
		{"no year", []byte{tiny, tiny, tiny}, []byte{0b0110_0000}, []bool{false, true, true}},
		{"the same either way", []byte{tiny, year}, []byte{0b1000_0000}, []bool{true, false}},
		{"a bit for the year, or none", []byte{tiny, year, tiny}, []byte{0b0100_0000}, nil},
		{"one byte: the year has no bit", []byte{year, tiny, tiny, tiny, tiny, tiny, tiny, tiny, tiny}, []byte{0b1000_0001},
			[]bool{false, true, false, false, false, false, false, false, true}},
		{"two bytes: the year has a bit", []byte{year, tiny, tiny, tiny, tiny, tiny, tiny, tiny, tiny}, []byte{0b0100_0000, 0b1000_0000},
			[]bool{false, true, false, false, false, false, false, false, true}},
	} {
		e := &replication.TableMapEvent{ColumnCount: uint64(len(tc.types)), ColumnType: tc.types,
			ColumnMeta: make([]uint16, len(tc.types)), SignednessBitmap: tc.bits}
		got, clear := signs(e)
		if clear != (tc.want != nil) || clear && !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, %v", tc.what, got, clear)
		}
	}
}
