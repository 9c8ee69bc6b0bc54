package mysql

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

var errShort = errors.New("the event ends in the middle of a row")

// rowDecoder reads the rows of one event of one table version.
type rowDecoder struct {
	*layout
	json    *jsonDecoder
	partial bool // PARTIAL_UPDATE_ROWS: JSON columns of the after image may be differences
}

// image appends one row image to row, in which only the columns of present are. after is the second image of an update.
func (d *rowDecoder) image(row cdc.Row, in *cursor, present bitmap, after bool) (cdc.Row, error) {
	var diffs bitmap
	if d.partial && after && in.lenenc()&1 != 0 {
		diffs = bitmap(in.take(bitmapBytes(d.jsonColumns)))
	}
	nulls := bitmap(in.take(bitmapBytes(present.count(len(d.list)))))
	row = slices.Grow(row, len(d.columns.List))
	nth, nthJSON := 0, 0
	for i := range d.list {
		c := &d.list[i]
		isDiff := false
		if c.kind == mysql.MYSQL_TYPE_JSON {
			isDiff = diffs.has(nthJSON)
			nthJSON++
		}
		var v cdc.Value // Absent
		if present.has(i) {
			var err error
			switch {
			case nulls.has(nth):
				v.Kind = cdc.Null
			case isDiff:
				in.prefixed(int(c.meta))
				v = unclear("only what changed within it is in the log (binlog_row_value_options=PARTIAL_JSON)")
			default:
				v, err = c.value(in, d.json)
			}
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", c.name, err)
			}
			nth++
		}
		if !c.hidden {
			row = append(row, v)
		}
	}
	if in.short {
		return nil, errShort
	}
	return row, nil
}
