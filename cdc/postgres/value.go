package postgres

import (
	"encoding/hex"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"invalidator/cdc"
)

// kindOf says how values of a type stand, by the type's number: a domain's by that of the type beneath it. Whatever is not
// named here is Text: the text that SELECT shows.
func kindOf(oid uint32) cdc.Kind {
	switch oid {
	case pgtype.BoolOID:
		return cdc.Bool
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID:
		return cdc.Integer
	case pgtype.NumericOID:
		return cdc.Decimal
	case pgtype.Float4OID, pgtype.Float8OID:
		return cdc.Float
	case pgtype.ByteaOID:
		return cdc.Bytea
	case pgtype.JSONOID, pgtype.JSONBOID:
		return cdc.JSON
	}
	return cdc.Text
}

// valueOf is a column's value as the log's text gives it.
func valueOf(kind cdc.Kind, text string) cdc.Value {
	switch kind {
	case cdc.Bytea:
		if len(text) >= 2 && text[0] == '\\' && text[1] == 'x' { // bytea_output is pinned to hex
			if raw, err := hex.DecodeString(text[2:]); err == nil {
				return cdc.Value{Kind: cdc.Bytea, S: string(raw)}
			}
		}
		return cdc.Value{Kind: cdc.Unclear, S: text, Why: "a bytea that is not in hex"}
	case cdc.Text, cdc.JSON:
		if !utf8.ValidString(text) { // a SQL_ASCII database converts nothing
			return cdc.Value{Kind: cdc.Unclear, S: text, Why: "text that is not UTF-8"}
		}
	}
	return cdc.Value{Kind: kind, S: text}
}

// readTuple appends a tuple of rel's layout to row. Of a key tuple only the columns of the replica identity were sent: the others
// are Absent, whatever stands there.
func readTuple(row cdc.Row, c *cursor, rel *relation, keyOnly bool) (cdc.Row, error) {
	n := c.uint16()
	if c.bad {
		return nil, errShortMessage
	}
	if n != len(rel.kinds) {
		return nil, fmt.Errorf("a tuple has %d columns, the table %d", n, len(rel.kinds))
	}
	if row = slices.Grow(row, n); row == nil {
		row = cdc.Row{} // of a table without columns: an image all the same
	}
	for i := range n {
		var v cdc.Value
		switch mark := c.byte(); mark {
		case columnNull:
			v.Kind = cdc.Null
		case columnToast:
		case columnText:
			v = valueOf(rel.kinds[i], c.text())
		case columnBinary:
			v = cdc.Value{Kind: cdc.Unclear, S: c.text(), Why: "a value in binary form"}
		default:
			if c.bad {
				return nil, errShortMessage
			}
			return nil, fmt.Errorf("a column is marked %q", mark)
		}
		if keyOnly && !rel.identity[i] {
			v = cdc.Value{}
		}
		row = append(row, v)
	}
	return row, c.err()
}
