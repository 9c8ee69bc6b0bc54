package pipeline

import (
	"strconv"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// printer is a Mapper that knows the files of its mappings.
type printer interface{ PrintOf(owner string) string }

// printOf changes when what becomes of a mapping's rows may.
func printOf(m mapping.Mapper, owner string) string {
	if p, ok := m.(printer); ok {
		return p.PrintOf(owner)
	}
	return m.Fingerprint()
}

// stops has the mappings owe a record that they cannot render because the table is another now, before the record is taken. One that owes
// it already owes it no less.
func (p *partition) stops(r *changelog.Record, row *cdc.RowChange, skipped []mapping.Skip, today *Snapshot) {
	for i := range skipped {
		s := &skipped[i]
		if !stopsMapping(s, row) {
			continue
		}
		owner := s.Template.Owner()
		if p.ledger.openAt(debtID{KindTemplate, owner}, r.Offset, r.Time, printOf(today.Mapper, owner), today) {
			p.journal.note(time.Now(), today, sink.Debts, r.Offset)
		}
	}
}

func stopsMapping(s *mapping.Skip, row *cdc.RowChange) bool {
	return s.Template.Mapping != "" && !s.Template.Shadow && s.Stops(row)
}

// stillStopped opens the debts of mappings again that a pass was to pay, and that cannot render the record today either.
func (ps *pass) stillStopped(r *changelog.Record, row *cdc.RowChange, skipped []mapping.Skip, today *Snapshot) {
	for i := range skipped {
		s := &skipped[i]
		if !stopsMapping(s, row) {
			continue
		}
		id := debtID{KindTemplate, s.Template.Owner()}
		for j := range ps.taken {
			d := &ps.taken[j]
			if d.debtID == id && d.from <= r.Offset && r.Offset < d.to &&
				ps.p.ledger.openAt(id, r.Offset, r.Time, printOf(today.Mapper, id.name), today) {
				rouse(ps.p.wake)
			}
		}
	}
}

// event hands a word on to whoever keeps them. p is where it began; nil: nowhere.
func (w *Worker) event(what, about string, p *partition, offset int64) {
	if w.opts.Event == nil {
		return
	}
	detail := map[string]string{}
	if p != nil {
		detail["topic"], detail["partition"], detail["offset"] = p.id.Topic, strconv.Itoa(int(p.id.Number)), strconv.FormatInt(offset, 10)
	}
	w.opts.Event(what, about, detail)
}
