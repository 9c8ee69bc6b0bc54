package mysql

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"invalidator/cdc"
)

// catalogue is what the server's catalogue tells of the included tables, as of the place that is read. Where the log does not
// describe its tables itself, a row may only be read by a schema of which it is certain that it held when the row was logged:
// the schema is taken while the table is locked against DDL, together with the log's end, and holds for a row before that end
// if no DDL on the table lies between. What lies between is found by looking ahead in the log. follow.go has how it goes on from there,
// and history.go what of it is kept for later processes.
type catalogue struct {
	f      *Feeder
	server *server

	known  map[cdc.TableID]bool // included tables that exist, or did
	listed place                // the log's end when the catalogue was listed

	schemas map[cdc.TableID]*tableSchema // as of the place that is read
	unread  map[cdc.TableID]string       // why there is none
	ahead   ahead
	history *history
}

// place is an offset in a log file, of one server.
type place struct {
	file string
	pos  uint64
}

// compare orders places: files by their numbers.
func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(fileNumber(p.file), fileNumber(q.file)), cmp.Compare(p.pos, q.pos))
}

func fileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	return n
}

// unknownSchema is why a table's schema cannot be told for the place that is read.
type unknownSchema struct{ why string }

func (e *unknownSchema) Error() string { return e.why }

func newCatalogue(f *Feeder, srv *server) *catalogue {
	return &catalogue{f: f, server: srv, known: map[cdc.TableID]bool{}, schemas: map[cdc.TableID]*tableSchema{},
		unread: map[cdc.TableID]string{}, history: &history{server: srv}}
}

// list learns which included tables there are.
func (t *catalogue) list(c *conn) error {
	rows, err := c.rows("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE <> 'VIEW'" +
		" AND TABLE_SCHEMA NOT IN (" + systemSchemas + ")")
	if err != nil {
		return err
	}
	for _, r := range rows {
		if id := t.server.tableID(r[0], r[1]); t.server.included(id) {
			t.know(id)
		}
	}
	t.listed, err = endOfLog(c)
	return err
}

const systemSchemas = "'mysql','sys','information_schema','performance_schema'"

func (t *catalogue) know(id cdc.TableID) { t.known[id] = true }

// of lists the known tables of a database.
func (t *catalogue) of(database string) (list []cdc.TableID) {
	for id := range t.known {
		if id.Schema == database {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, func(a, b cdc.TableID) int { return strings.Compare(a.Table, b.Table) })
	return list
}

// beyond lists the known tables that another Include does not choose.
func (t *catalogue) beyond(earlier *cdc.Include) (list []cdc.TableID) {
	for id := range t.known {
		if !earlier.Match(id.Schema, id.Table) {
			list = append(list, id)
		}
	}
	slices.SortFunc(list, byName)
	return list
}

// all lists the databases of all known tables.
func (t *catalogue) all() (list []cdc.TableID) {
	for id := range t.known {
		if schema := (cdc.TableID{Schema: id.Schema}); !slices.Contains(list, schema) {
			list = append(list, schema)
		}
	}
	slices.SortFunc(list, func(a, b cdc.TableID) int { return strings.Compare(a.Schema, b.Schema) })
	return list
}

// knowsAll reports whether no included table can be there at a place of the log without being known.
func (t *catalogue) knowsAll(at *tracker) bool {
	return t.listed.file != "" && t.listed.compare(place{at.file, at.pos}) <= 0
}

// needed reports whether the log may speak of tables without describing them.
func (t *catalogue) needed() bool { return t.server.vars["binlog_row_metadata"] != "FULL" }

// schemaAndEnd reads a schema and then the log's end, while no DDL on the table can be under way: MariaDB changes the catalogue
// before it logs that.
func (c *conn) schemaAndEnd(id cdc.TableID) (s *tableSchema, end place, err error) {
	for _, q := range []string{"SET SESSION lock_wait_timeout = 5", "ROLLBACK", "START TRANSACTION",
		"SELECT 1 FROM " + identifier(id.Schema) + "." + identifier(id.Table) + " LIMIT 0"} {
		r, err := c.Execute(q)
		if err != nil {
			return nil, end, err
		}
		r.Close()
	}
	if s, err = c.schemaOf(id); err == nil {
		end, err = endOfLog(c)
	}
	return s, end, err
}

// endOfLog is where the server writes next.
func endOfLog(c *conn) (place, error) {
	queries := version{}.endQueries()
	if c.server != nil {
		queries = c.server.number.endQueries()
	}
	rows, err := c.first(queries)
	if err != nil {
		return place{}, err
	}
	if len(rows) == 0 {
		return place{}, errNoLog
	}
	pos, err := strconv.ParseUint(rows[0]["Position"], 10, 64)
	return place{rows[0]["File"], pos}, err
}
