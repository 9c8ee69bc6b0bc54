package mysql

import (
	"context"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// maxTables bounds the table versions that are remembered; beyond it they are looked at again.
const maxTables = 10_000

// tables remembers the table versions that the log spoke of, by the number that it gave them.
type tables struct {
	f      *Feeder
	server *server
	seen   map[uint64]seenTable
}

type seenTable struct {
	raw    string  // the table map event's body: equal bytes mean an equal table
	layout *layout // nil: not included
}

func newTables(f *Feeder, srv *server) *tables {
	return &tables{f: f, server: srv, seen: map[uint64]seenTable{}}
}

// forget drops everything: after a DDL the schema may say something else about the same bytes.
func (t *tables) forget() { clear(t.seen) }

// see takes a table map event, which precedes the rows events that use its number.
func (t *tables) see(ctx context.Context, e *replication.TableMapEvent, body []byte, at cdc.Position) error {
	if s, ok := t.seen[e.TableID]; ok && s.raw == string(body) {
		return nil
	}
	if len(t.seen) >= maxTables {
		t.forget()
	}
	s := seenTable{raw: string(body)}
	id := cdc.TableID{Schema: string(e.Schema), Table: string(e.Table)}
	if t.f.cfg.Include.Match(id.Schema, id.Table) {
		var schema *tableSchema
		var err error
		if !selfContained(e, t.server.maria) {
			if schema, err = t.f.loadSchema(ctx, id); err != nil {
				return err
			}
		}
		if s.layout, err = newLayout(e, t.server, schema); err != nil {
			return &cdc.SourceError{Source: t.f.cfg.Name, Table: id, At: at, Err: err,
				Hint: "SET GLOBAL binlog_row_metadata = FULL, so that the log describes its tables itself"}
		}
	}
	t.seen[e.TableID] = s
	return nil
}

// layoutOf is the layout of a table by its number; nil for a table that is not included.
func (t *tables) layoutOf(id uint64) (*layout, error) {
	if isDummyTable(id) {
		return nil, nil
	}
	s, ok := t.seen[id]
	if !ok {
		return nil, t.f.fail(fmt.Errorf("rows of table number %d, of which the log has not spoken", id), "", false)
	}
	return s.layout, nil
}
