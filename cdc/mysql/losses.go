package mysql

import (
	"context"
	"slices"
	"time"

	"invalidator/cdc"
)

// lossWindow is how long losses of the same kind are gathered: a table that cannot be read, or a session that logs statements, may
// lose rows in every transaction, and each loss that is told is a durable record. No position is told meanwhile, so that a crash
// reads them again.
const lossWindow = time.Second

// losses are those that are still to be told.
type losses struct {
	since time.Time // of the first
	list  []cdc.Loss
}

// lost notes that rows of tables changed in the present transaction and are not known. Tables that are not ours are left out.
// What is lost of a prepared transaction is lost when it is committed.
func (r *reader) lost(tables []cdc.TableID, why, hint string) {
	if len(tables) == 1 && tables[0] == (cdc.TableID{}) {
		tables = r.tables.all() // no database was chosen, and the text names none
	}
	tables = slices.DeleteFunc(slices.Clone(tables), func(id cdc.TableID) bool { return !r.server.included(id) })
	if len(tables) == 0 {
		return
	}
	l := cdc.Loss{Tables: tables, At: r.start, Tx: r.tx.text, Time: r.tx.at, Why: why, Hint: hint}
	if p := r.tx.prepared; p != nil {
		p.losses.note(l)
		return
	}
	if r.losses.note(l) {
		r.f.log.Error("rows changed that cannot be told: they are lost, and the rest goes on", "tables", tables, "gtid", r.tx.text, "why", why, "hint", hint)
	}
}

// note adds a loss, unless there is one of the same tables for the same reason.
func (l *losses) note(x cdc.Loss) bool {
	for _, other := range l.list {
		if other.Why == x.Why && slices.Equal(other.Tables, x.Tables) {
			return false
		}
	}
	if len(l.list) == 0 {
		l.since = time.Now()
	}
	l.list = append(l.list, x)
	return true
}

// tell hands the losses over once their window is over; told is false before that, and no position may be told then.
func (l *losses) tell(ctx context.Context, out cdc.Handler) (told bool, err error) {
	if len(l.list) == 0 {
		return true, nil
	}
	if time.Since(l.since) < lossWindow {
		return false, nil
	}
	for _, x := range l.list {
		if err := out.Lost(ctx, x); err != nil {
			return false, err
		}
	}
	*l = losses{}
	return true, nil
}
