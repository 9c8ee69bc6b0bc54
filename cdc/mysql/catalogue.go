package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// catalogue is what the server's catalogue tells of the included tables, as of the place that is read. Where the log does not
// describe its tables itself, a row may only be read by a schema of which it is certain that it held when the row was logged:
// the schema is taken while the table is locked against DDL, together with the log's end, and holds for a row before that end
// if no DDL on the table lies between. What lies between is found by looking ahead in the log.
type catalogue struct {
	f      *Feeder
	server *server

	known  map[cdc.TableID]bool // included tables that exist, or did
	listed place                // the log's end when the catalogue was listed

	schemas map[cdc.TableID]*tableSchema // as of the place that is read
	unread  map[cdc.TableID]string       // why there is none
	ahead   ahead
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
		unread: map[cdc.TableID]string{}}
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
	slices.SortFunc(list, func(a, b cdc.TableID) int { return strings.Compare(a.String(), b.String()) })
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

// altered takes a statement that was read, of the event that ends at pos, and learns at once what it has made, before the next.
func (t *catalogue) altered(ctx context.Context, st statement, r *reader) error {
	t.ahead.passed(place{r.track.file, r.at})
	maps.DeleteFunc(t.schemas, func(id cdc.TableID, _ *tableSchema) bool { return st.touches(id) })
	var ours []cdc.TableID
	for _, id := range st.tables {
		if id.Table != "" && t.server.included(id) {
			t.know(id)
			ours = append(ours, id)
		}
	}
	if !t.needed() {
		return nil
	}
	return t.learn(ctx, ours, r)
}

// schemaAt is a table's schema at the place that is read; an *unknownSchema where nobody can tell it.
func (t *catalogue) schemaAt(ctx context.Context, id cdc.TableID, r *reader) (*tableSchema, error) {
	if s := t.schemas[id]; s != nil {
		return s, nil
	}
	if err := t.learn(ctx, []cdc.TableID{id}, r); err != nil {
		return nil, err
	}
	if s := t.schemas[id]; s != nil {
		return s, nil
	}
	if at, ok := t.ahead.alters(id); ok {
		return nil, &unknownSchema{fmt.Sprintf("the log does not name its columns and the table was altered since (%s:%d)", at.file, at.pos)}
	}
	return nil, &unknownSchema{"the log does not name its columns and the database does not tell them: " + t.unread[id]}
}

// maxLearned bounds the tables whose schemas are read at the start: so many take some seconds. The others are read when their
// first row comes.
const maxLearned = 2000

// learnAll reads the schemas of the known tables, at the start: one that is altered soon after can then be read up to there.
func (t *catalogue) learnAll(ctx context.Context, r *reader) error {
	ids := slices.SortedFunc(maps.Keys(t.known), func(a, b cdc.TableID) int { return strings.Compare(a.String(), b.String()) })
	return t.learn(ctx, ids[:min(len(ids), maxLearned)], r)
}

// learn reads the schemas of tables that exist now and were not altered between the place that is read and now.
func (t *catalogue) learn(ctx context.Context, ids []cdc.TableID, r *reader) error {
	if len(ids) == 0 {
		return nil
	}
	c, err := t.f.connectTo(ctx, t.server.addr)
	if err != nil {
		return err
	}
	defer c.close()
	learned := map[cdc.TableID]*tableSchema{}
	var end place
	for _, id := range ids {
		s, at, err := c.schemaAndEnd(id)
		switch me := (*mysql.MyError)(nil); {
		case err == nil:
			learned[id], end = s, at
		case errors.As(err, &me) && me.Code != mysql.ER_LOCK_WAIT_TIMEOUT: // of this table alone
			t.unread[id] = plain(err).Error()
			if me.Code == mysql.ER_NO_SUCH_TABLE || me.Code == mysql.ER_BAD_DB_ERROR {
				t.unread[id] = "the database has no such table now"
			}
		default:
			return t.f.classify(fmt.Errorf("reading the schema of %s: %w", id, err), r.start)
		}
	}
	if err := t.ahead.look(ctx, t, r, end); err != nil {
		return t.f.classify(fmt.Errorf("looking ahead in the log for changes of tables: %w", err), r.start)
	}
	for id, s := range learned {
		if _, ok := t.ahead.alters(id); !ok {
			t.schemas[id] = s
		}
	}
	return nil
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
