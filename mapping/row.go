package mapping

import (
	"errors"
	"fmt"
	"strings"

	"invalidator/cdc"
)

// ParseRow reads a change that somebody typed: the table as schema.table, and its images as in a file's tests, in JSON or YAML.
// An empty text is no image. A column that one image leaves out is equal in both.
func ParseRow(table, before, after string) (*cdc.RowChange, error) {
	t := &Test{}
	var ok bool
	if t.Table.Schema, t.Table.Table, ok = strings.Cut(table, "."); !ok || t.Table.Schema == "" || t.Table.Table == "" {
		return nil, fmt.Errorf("%q is no table's name (write schema.table; in MySQL the database is the schema)", table)
	}
	if before == "" && after == "" {
		return nil, errors.New("a row has neither before nor after (an insert has only after, a delete only before)")
	}
	var err error
	if t.Before, err = parseImage("before", before); err != nil {
		return nil, err
	}
	if t.After, err = parseImage("after", after); err != nil {
		return nil, err
	}
	return t.change(), nil
}

func parseImage(name, text string) (map[string]cdc.Value, error) {
	if text == "" {
		return nil, nil
	}
	r := reader{file: name}
	var image map[string]cdc.Value
	if root := r.document([]byte(text)); root != nil {
		image = r.image(root, name)
	}
	if len(r.problems) > 0 {
		return nil, errors.New(r.problems[0].String())
	}
	return image, nil
}
