package mapping

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"invalidator/cdc"
)

// Stops reports whether a skip of c says that the table is another than its template was written for, so that the same log may give the key
// once the mapping is mended: a column that is gone or has another name, or a type that the template cannot take. Else it is the row
// that has no such key, or that the log did not write whole: another mapping would not get it from there either.
//
// A column that is missing counts where the image is known to be whole: what was inserted, and an update both of whose images have all else
// that the table's templates read, beside its key. A minimal image has the key alone before.
func (s *Skip) Stops(c *cdc.RowChange) bool {
	switch s.Reason {
	case SkipType, SkipUnclear:
		return true
	case SkipAbsent:
	default:
		return false
	}
	if c.Columns == nil || c.Columns.Index(s.Column) < 0 || s.Image != After || c.After == nil {
		return false
	}
	return c.Op == cdc.Insert || c.Op == cdc.Read || c.Op == cdc.Update && wholeBut(c, s.Column)
}

// wholeBut reports whether both images hold every column but one, and some of them is none of the key's.
func wholeBut(c *cdc.RowChange, column string) bool {
	if c.Before == nil {
		return false
	}
	others := false
	for i, col := range c.Columns.List {
		if c.Before[i].Kind == cdc.Absent || c.After[i].Kind == cdc.Absent {
			if col.Name != column {
				return false
			}
			continue
		}
		others = others || !slices.Contains(c.KeyColumns, col.Name)
	}
	return others
}

// Owner names a template's mapping among those of all teams: team/mapping.
func (t *Template) Owner() string { return t.Team + "/" + t.Mapping }

// PrintOf is of the file that has a mapping, named as Owner does; empty where none has it. It changes when what becomes of the mapping's
// rows may change.
func (s *Set) PrintOf(owner string) string {
	for _, f := range s.files {
		for _, m := range f.Mappings {
			if f.Team+"/"+m.Name == owner {
				sum := sha256.Sum256(f.data)
				return hex.EncodeToString(sum[:8])
			}
		}
	}
	return ""
}
