package demo

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"invalidator/cdc"
)

// table is one table of the demo's shop, and how its readers cache its rows. What they do is written down here a second
// time, beside the mapping files: readers are other programs, which know nothing of ours.
type table struct {
	name    string
	columns []column // the first is the primary key, a number
	keys    []readerKey
}

type column struct {
	name     string
	kind     cdc.Kind
	mysql    string // its type there
	postgres string
}

// readerKey is a key under which readers keep something of a row.
type readerKey struct {
	of    func(r row) string
	value func(t *table, r row) string
}

// row is a row's texts, parallel to its table's columns.
type row []string

func (r row) id() uint64 {
	n, err := strconv.ParseUint(r[0], 10, 64)
	if err != nil {
		panic(err) // the demo wrote it, into a column of numbers
	}
	return n
}

var users = &table{
	name: "users",
	columns: []column{
		{"id", cdc.Integer, "bigint unsigned", "bigint"},
		{"email", cdc.Text, "varchar(120)", "text"},
		{"name", cdc.Text, "varchar(80)", "text"},
		{"city", cdc.Text, "varchar(80)", "text"},
	},
	keys: []readerKey{
		{of: func(r row) string { return "user:" + r[0] }, value: (*table).document},
		{of: func(r row) string { return "user:by-email:" + strings.ToLower(r[1]) }, value: (*table).number},
	},
}

var products = &table{
	name: "products",
	columns: []column{
		{"id", cdc.Integer, "bigint unsigned", "bigint"},
		{"sku", cdc.Text, "varchar(40)", "text"},
		{"title", cdc.Text, "varchar(80)", "text"},
		{"price", cdc.Decimal, "decimal(10,2)", "numeric(10,2)"},
	},
	keys: []readerKey{
		{of: func(r row) string { return "product:" + r[0] }, value: (*table).document},
		{of: func(r row) string { return "product:by-sku:" + strings.ToUpper(r[1]) }, value: (*table).number},
	},
}

var tables = []*table{users, products}

// declaredHot is how many copies key#1 … all readers know a key to have: a product's page, product:{id}, has eight.
func declaredHot(key string) int {
	if id, ok := strings.CutPrefix(key, "product:"); ok && !strings.Contains(id, ":") {
		return 8
	}
	return 0
}

// notFound is what readers cache where there is no row.
const notFound = "(not found)"

// document is a row as readers cache it: JSON, its columns in order.
func (t *table) document(r row) string {
	b := []byte{'{'}
	for i, c := range t.columns {
		if i > 0 {
			b = append(b, ',')
		}
		text, err := json.Marshal(r[i])
		if err != nil {
			panic(err) // a string always has JSON
		}
		b = append(append(append(b, '"'), c.name...), `":`...)
		b = append(b, text...)
	}
	return string(append(b, '}'))
}

// number is what readers cache under a key that finds a row by something else than its number.
func (t *table) number(r row) string { return r[0] }

// render is what readers would cache of the rows now, by key. What is not in it is not found.
func (t *table) render(rows []row) map[string]string {
	out := make(map[string]string)
	for _, r := range rows {
		for _, k := range t.keys {
			out[k.of(r)] = k.value(t, r)
		}
	}
	return out
}

// seed makes a row as it is before a step.
func (t *table) seed(id uint64) row {
	n := strconv.FormatUint(id, 10)
	if t == products {
		return row{n, "cup-" + n, "A blue cup", "12.50"}
	}
	return row{n, "Ada." + n + "@demo.test", "Ada", "London"}
}

func (t *table) column(name string) int {
	for i, c := range t.columns {
		if c.name == name {
			return i
		}
	}
	panic("table " + t.name + " has no column " + name) // steps are written in the code
}

// create is the table's DDL.
func (t *table) create(typeOf func(column) string) string {
	var cols []string
	for i, c := range t.columns {
		def := c.name + " " + typeOf(c) + " NOT NULL"
		if i == 0 {
			def += " PRIMARY KEY"
		}
		cols = append(cols, def)
	}
	return fmt.Sprintf("CREATE TABLE %s (%s)", t.name, strings.Join(cols, ", "))
}
