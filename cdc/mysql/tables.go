package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// maxTables bounds the table versions that are remembered; beyond it they are looked at again.
const maxTables = 10_000

// tables remembers the table versions that the log spoke of, by the number that it gave them.
type tables struct {
	*catalogue
	seen map[uint64]seenTable
}

type seenTable struct {
	raw    string // the table map event's body: equal bytes mean an equal table
	id     cdc.TableID
	wanted bool    // it is included
	layout *layout // nil where broken
	broken error   // why its rows cannot be read
	hint   string
}

func newTables(f *Feeder, srv *server) *tables {
	return &tables{catalogue: newCatalogue(f, srv), seen: map[uint64]seenTable{}}
}

// beside is for a second look at the log, whose numbers are of another time. What is known of schemas is shared.
func (t *tables) beside() *tables {
	return &tables{catalogue: t.catalogue, seen: map[uint64]seenTable{}}
}

// renumber forgets the numbers.
func (t *tables) renumber() { clear(t.seen) }

// altered forgets what a statement may have changed.
func (t *tables) altered(ctx context.Context, st statement, r *reader) error {
	if st.reach == reachNone {
		return nil
	}
	if st.reach == reachAll && st.verb == verbOther {
		t.f.log.Info("a statement is not understood: what is known of all tables is forgotten", "begins", st.word, "gtid", r.tx.text)
	}
	clear(t.seen)
	return t.catalogue.altered(ctx, st, r)
}

// see takes a table map event, which precedes the rows events that use its number. The error is one that stops the source; a table
// that cannot be read is broken and stays so until the log speaks of it in other words.
func (t *tables) see(ctx context.Context, e *replication.TableMapEvent, body []byte, r *reader) error {
	if s, ok := t.seen[e.TableID]; ok && s.raw == string(body) && s.broken == nil {
		return nil
	}
	if len(t.seen) >= maxTables {
		clear(t.seen)
	}
	s := seenTable{raw: string(body), id: t.server.tableID(string(e.Schema), string(e.Table))}
	if s.wanted = t.server.included(s.id); s.wanted {
		t.know(s.id)
		if err := t.lay(ctx, &s, e, body, r); err != nil {
			return err
		}
	}
	t.seen[e.TableID] = s
	return nil
}

// lay finds a table's layout, or why there is none.
func (t *tables) lay(ctx context.Context, s *seenTable, e *replication.TableMapEvent, body []byte, r *reader) error {
	s.hint = "report it with the table's definition"
	var compressed []bool
	if compressed, s.broken = uncompressTypes(e, body); s.broken != nil {
		return nil
	}
	var schema *tableSchema
	var err error
	if !selfContained(e, t.server.maria) {
		if schema, err = t.schemaAt(ctx, s.id, r); err != nil && !errors.As(err, new(*unknownSchema)) {
			return err
		}
		s.hint = "SET GLOBAL binlog_row_metadata = FULL, so that the log describes its tables itself"
	}
	s.layout, s.broken = newLayout(s.id, e, t.server, compressed, schema, err)
	return nil
}

// byNumber is what is known of a table by its number.
func (t *tables) byNumber(id uint64) (seenTable, error) {
	if isDummyTable(id) {
		return seenTable{}, nil
	}
	s, ok := t.seen[id]
	if !ok {
		return s, t.f.fail(fmt.Errorf("rows of table number %d, of which the log has not spoken", id), "", false)
	}
	return s, nil
}
