package mysql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// maxLearned bounds the tables whose schemas are read at once: so many take some seconds. The others are read when their
// first row comes.
const maxLearned = 2000

// learnAll reads the schemas of the known tables, at the start: one that is altered soon after can then be read up to there.
func (t *catalogue) learnAll(ctx context.Context, r *reader) error {
	ids := slices.SortedFunc(maps.Keys(t.known), byName)
	return t.learn(ctx, ids[:min(len(ids), maxLearned)], r)
}

// remember takes from the history what the catalogue does not tell, at the start, and begins to keep it.
func (t *catalogue) remember(ctx context.Context, r *reader) error {
	for _, id := range t.history.tables() {
		t.know(id)
		then, now := t.history.at(id, r.start), t.schemas[id]
		switch {
		case then == nil:
		case now == nil:
			t.schemas[id] = then
		case !now.likens(then):
			t.f.log.Warn("a table is not what it was, and no statement in the log has changed it: its rows are read as the database has it now",
				"table", id, "hint", "an ALTER TABLE under sql_log_bin=0; flush the pools of the table if rows were written before it")
		}
	}
	for id, s := range t.schemas {
		t.history.set(id, r.start, s)
	}
	return t.history.begin(ctx, r.start)
}

// altered takes a statement that was read, and learns at once what it has made, before the next. What it has made, or that nobody
// knows it, is durable when it returns: no position behind the statement was told before.
func (t *catalogue) altered(ctx context.Context, st statement, r *reader) error {
	t.ahead.passed(place{r.track.file, r.at})
	moved := map[cdc.TableID]*tableSchema{}
	var touched, ours []cdc.TableID
	for _, id := range t.touched(st) {
		touched = append(touched, id)
		if to, ok := st.renamed(id); ok && t.schemas[id] != nil {
			moved[to] = t.schemas[id]
		}
		delete(t.schemas, id)
	}
	for _, id := range st.tables {
		if id.Table != "" && t.server.included(id) {
			t.know(id)
			ours = append(ours, id)
		}
	}
	if st.keeps {
		return nil
	}
	if t.needed() {
		if st.reach == reachAll && t.history.keep != nil { // else each is read when its next row comes
			ours = touched[:min(len(touched), maxLearned)]
		}
		if err := t.learn(ctx, ours, r); err != nil {
			return err
		}
	}
	at := r.behind()
	for _, id := range union(touched, ours) {
		for _, s := range []*tableSchema{moved[id], t.history.since(id, at)} {
			if t.schemas[id] == nil && s != nil {
				t.schemas[id] = s
			}
		}
		t.history.set(id, at, t.schemas[id])
	}
	return t.history.flush(ctx)
}

// touched lists the tables of which something is known that a statement may have changed.
func (t *catalogue) touched(st statement) (list []cdc.TableID) {
	for _, id := range union(slices.Collect(maps.Keys(t.schemas)), t.history.tables()) {
		if st.touches(id) {
			list = append(list, id)
		}
	}
	return list
}

func byName(a, b cdc.TableID) int { return strings.Compare(a.String(), b.String()) }

func union(a, b []cdc.TableID) []cdc.TableID {
	all := slices.Concat(a, b)
	slices.SortFunc(all, byName)
	return slices.Compact(all)
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
		if r.again == nil { // else its place is not the one that is told next
			t.history.set(id, r.start, s)
		}
		return s, t.history.flush(ctx)
	}
	if _, at, ok := t.ahead.follow(t.server, id); !ok {
		return nil, &unknownSchema{fmt.Sprintf("the log does not name its columns and the table was altered since (%s:%d)", at.file, at.pos)}
	}
	return nil, &unknownSchema{"the log does not name its columns and the database does not tell them: " + t.unread[id]}
}

// maxRenames bounds how often a table is looked for again under another name.
const maxRenames = 8

// learn reads the schemas of tables that were not altered between the place that is read and now. One that has another name by now,
// as the new table of a swap has, is found under that.
func (t *catalogue) learn(ctx context.Context, ids []cdc.TableID, r *reader) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id cdc.TableID) bool {
		_, _, ok := t.ahead.follow(t.server, id)
		return !ok
	})
	if len(ids) == 0 {
		return nil
	}
	c, err := t.f.connectTo(ctx, t.server.addr)
	if err != nil {
		return err
	}
	defer c.close()
	for range maxRenames {
		if ids, err = t.learnNamed(ctx, c, ids, r); err != nil || len(ids) == 0 {
			return err
		}
	}
	return nil
}

// learnNamed reads the schemas of tables under the names that they have by now, as far as is known, and gives the tables that turn out
// to have been renamed since.
func (t *catalogue) learnNamed(ctx context.Context, c *conn, ids []cdc.TableID, r *reader) (again []cdc.TableID, err error) {
	names, learned := map[cdc.TableID]cdc.TableID{}, map[cdc.TableID]*tableSchema{}
	var end place
	for _, id := range ids {
		name, _, ok := t.ahead.follow(t.server, id)
		if !ok {
			continue
		}
		names[id] = name
		s, at, err := c.schemaAndEnd(name)
		var me *mysql.MyError
		if errors.As(err, &me) && me.Code != mysql.ER_LOCK_WAIT_TIMEOUT { // of this table alone
			t.unread[id] = plain(err).Error()
			if me.Code == mysql.ER_NO_SUCH_TABLE || me.Code == mysql.ER_BAD_DB_ERROR {
				t.unread[id] = "the database has no such table now"
			}
			at, err = endOfLog(c) // the log may tell where it went
		}
		if err != nil {
			return nil, t.f.classify(fmt.Errorf("reading the schema of %s: %w", name, err), r.start)
		}
		learned[id], end = s, at
	}
	if err := t.ahead.look(ctx, t, r, end); err != nil {
		return nil, t.f.classify(fmt.Errorf("looking ahead in the log for changes of tables: %w", err), r.start)
	}
	for id, read := range names {
		switch name, _, ok := t.ahead.follow(t.server, id); {
		case !ok:
		case name != read:
			again = append(again, id)
		case learned[id] != nil:
			t.schemas[id] = learned[id]
		}
	}
	return again, nil
}
