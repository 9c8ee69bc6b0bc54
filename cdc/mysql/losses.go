package mysql

import (
	"context"
	"time"

	"invalidator/cdc"
)

// lossWindow is how long losses of the same kind are gathered: a table that cannot be read may change in every transaction, and
// each loss that is told is a durable record. No position is told meanwhile, so that a crash reads them again.
const lossWindow = time.Second

// losses are those that are still to be told.
type losses struct {
	since time.Time // of the first
	list  []cdc.Loss
}

// add notes that rows of a table in the present transaction are lost. A table is told once a window.
func (l *losses) add(r *reader, id cdc.TableID, why, hint string) {
	if p := r.tx.prepared; p != nil {
		p.losses.note(cdc.Loss{Tables: []cdc.TableID{id}, Why: why, Hint: hint})
		return
	}
	if l.note(cdc.Loss{Tables: []cdc.TableID{id}, At: r.start, Tx: r.tx.text, Time: r.tx.at, Why: why, Hint: hint}) {
		r.f.log.Error("rows of a table cannot be read: they are lost, and the rest goes on", "table", id.String(), "gtid", r.tx.text,
			"why", why, "hint", hint)
	}
}

func (l *losses) note(x cdc.Loss) bool {
	for _, other := range l.list {
		if other.Tables[0] == x.Tables[0] && other.Why == x.Why {
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
