package mysql

import (
	"context"
	"errors"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// ahead holds the DDL that lies between the place that is read and one farther on.
type ahead struct {
	until *tracker // so far it was looked
	list  []alteration
	last  place // of the last statement that was read
}

type alteration struct {
	at place // its end
	st statement
}

// passed drops what the reader has come to.
func (a *ahead) passed(p place) {
	a.last = p
	a.list = slices.DeleteFunc(a.list, func(x alteration) bool { return x.at.compare(p) <= 0 })
}

// follow tells under which name a table, with the layout that it has now, stands where the looking ended. blocked is a statement on the
// way that may have changed its layout, or after which nobody can tell.
func (a *ahead) follow(srv *server, id cdc.TableID) (now cdc.TableID, blocked place, ok bool) {
	for _, x := range a.list {
		if !x.st.touches(id) {
			continue
		}
		to, renamed := x.st.renamed(id)
		if !renamed || !srv.included(to) { // of others the statements were not kept
			return id, x.at, false
		}
		id = to
	}
	return id, place{}, true
}

// look reads the log from where it was looked at last up to end, over a dump of its own, and for statements only.
func (a *ahead) look(ctx context.Context, t *catalogue, r *reader, end place) error {
	if a.until == nil || (place{a.until.file, a.until.pos}).compare(place{r.track.file, r.track.pos}) < 0 {
		a.until, a.list = r.track.cloneAll(), nil
	}
	if end.compare(place{a.until.file, a.until.pos}) <= 0 || r.at != 0 && end.compare(place{r.track.file, r.at}) <= 0 {
		return nil
	}
	d, err := t.f.openDump(ctx, t.server, a.until.cloneAll(), toLook)
	if err != nil {
		return err
	}
	defer d.close()
	d.statementsOnly = true
	for {
		e, err := d.next()
		if err != nil {
			return err
		}
		switch ev := e.Event.(type) {
		case *replication.RotateEvent:
			a.until.file, a.until.pos = string(ev.NextLogName), ev.Position
		case *replication.GTIDEvent, *replication.GtidTaggedLogEvent, *replication.MariadbGTIDEvent:
			a.gtid(e)
		case *replication.QueryEvent:
			a.statement(t.server, e, ev)
		}
		if e.Header.LogPos > 0 && e.Header.EventType != replication.ROTATE_EVENT {
			a.until.pos = uint64(e.Header.LogPos)
		}
		if end.compare(place{a.until.file, a.until.pos}) <= 0 {
			return nil
		}
	}
}

// gtid notes a transaction as looked at: where its statement is its last event, nothing else follows.
func (a *ahead) gtid(e *replication.BinlogEvent) {
	var g gtid
	switch ev := e.Event.(type) {
	case *replication.GTIDEvent:
		g, _ = mysqlGTIDOf(ev)
	case *replication.GtidTaggedLogEvent:
		g, _ = mysqlGTIDOf(&ev.GTIDEvent)
	case *replication.MariadbGTIDEvent:
		g.maria = ev.GTID
	}
	a.until.ended(&g, 0)
}

func (a *ahead) statement(srv *server, e *replication.BinlogEvent, ev *replication.QueryEvent) {
	st := recognise(string(ev.Query), string(ev.Schema))
	at := place{a.until.file, uint64(e.Header.LogPos)}
	if st.reach == reachNone || at.compare(a.last) <= 0 {
		return
	}
	st.as(srv)
	if st.reach == reachAll || slices.ContainsFunc(st.tables, srv.included) {
		a.list = append(a.list, alteration{at, st})
	}
}

var errNoLog = errors.New("the server has no binary log")
