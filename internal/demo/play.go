package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"invalidator/sink"
)

// stepLimit is how long any single thing may take that takes milliseconds when all is well.
const stepLimit = 15 * time.Second

// scene is a step on one database.
type scene struct {
	step
	db      database
	from    uint64 // the step's rows lie in [from, from+perStep)
	writes  []write
	changes []change
	keys    []string // that readers may hold of the rows before or after
	records int
}

// play tells a step on all databases.
func (d *demo) play(ctx context.Context, nth int, s step) error {
	d.out.Title("%d. %s", nth+1, s.title)
	d.out.Line("   %s", d.out.Faint(s.note))
	fail := func(where string, err error) error {
		return fmt.Errorf("step %d (%s), %s: %w", nth+1, strings.ToLower(s.title[:1])+s.title[1:], where, err)
	}
	if s.resize {
		if err := d.ring.resize(ctx); err != nil {
			return fail("the ring", err)
		}
		d.out.Line("   ring epoch %d is published, epoch %d stands in it as previous", d.ring.record.Epoch, d.ring.record.Previous.Epoch)
	}
	var scenes []*scene
	for i, db := range d.stage.databases {
		sc, err := d.scene(ctx, s, db, first(d.base(i), nth))
		if err == nil {
			scenes = append(scenes, sc)
			err = d.announce(ctx, sc)
		}
		if err != nil {
			return fail(db.name(), err)
		}
	}
	if s.announced() {
		// The later rounds of what announce wrote must not take what is filled now.
		if err := d.sight.settled(ctx, stepLimit, d.records); err != nil {
			return fail("before it", err)
		}
		if err := d.parts.actedOn(ctx); err != nil {
			return fail("before it", err)
		}
	}
	for _, sc := range scenes {
		if err := d.perform(ctx, sc); err != nil {
			return fail(sc.db.name(), err)
		}
	}
	return nil
}

// scene finds the rows that the step changes, and the keys that readers may hold of them.
func (d *demo) scene(ctx context.Context, s step, db database, from uint64) (*scene, error) {
	rows, err := db.rows(ctx, s.table, from, from+perStep-1)
	if err != nil {
		return nil, err
	}
	subject := from
	if s.resize {
		moves := slices.IndexFunc(rows, func(r row) bool { return d.ring.moving(s.table.key(r)) })
		if moves < 0 {
			return nil, fmt.Errorf("no key of %d rows moves from one shard to another", len(rows))
		}
		subject = rows[moves].id()
	}
	sc := &scene{step: s, db: db, from: from, writes: s.writes(subject)}
	seen := map[string]bool{}
	for _, w := range sc.writes {
		for _, c := range w.changes(rows) {
			sc.changes = append(sc.changes, c)
			sc.records += c.records()
			for _, k := range c.keys() {
				if !seen[k] {
					seen[k] = true
					sc.keys = append(sc.keys, k)
				}
			}
		}
	}
	return sc, nil
}

// announce publishes the step's hot key, and waits until the worker of the row's partition knows today's ring and hot keys.
func (d *demo) announce(ctx context.Context, sc *scene) error {
	if sc.hot > 0 {
		if err := d.ring.heat(ctx, sc.keys[0], sc.hot); err != nil {
			return err
		}
	}
	if !sc.announced() {
		return nil
	}
	// A worker shows what it knows by what it deletes: the row is touched until every copy goes.
	ctx, cancel := context.WithTimeoutCause(ctx, stepLimit, fmt.Errorf("waited %v for the worker to learn what was published", stepLimit))
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	subject := sc.changes[0].before
	for n := 1; ; n++ {
		missing, err := d.touch(ctx, sc, subject, n)
		if err != nil || len(missing) == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// touch updates the row and returns the copies of its keys that the worker did not delete.
func (d *demo) touch(ctx context.Context, sc *scene, r row, n int) ([]sink.Copy, error) {
	var want []sink.Copy
	keys := map[string]bool{}
	for _, k := range sc.table.keys {
		keys[k.of(r)] = true
		want = append(want, d.ring.copies(k.of(r))...)
	}
	mark := d.sight.mark()
	if _, err := sc.db.exec(ctx, update(sc.table, r.id(), r.id(), "city", fmt.Sprint("touched ", n))); err != nil {
		return nil, err
	}
	d.records++
	seen, err := d.firstRounds(ctx, mark, keys, 1)
	if err != nil {
		return nil, err
	}
	return without(want, seen[0].copies), nil
}

// firstRounds waits for the first rounds of records that have one of the keys.
func (d *demo) firstRounds(ctx context.Context, mark int, keys map[string]bool, records int) (done []seen, err error) {
	err = d.sight.await(ctx, stepLimit, func() bool { done = d.sight.since(mark, keys); return len(done) >= records },
		func() string {
			return fmt.Sprintf("the first round of %d records with %d keys; %d have had theirs", records, len(keys), len(done))
		})
	return done, err
}

// prepare caches the keys of some rows as readers do, and looks whether every copy is there. extra are keys that no row has.
func (d *demo) prepare(ctx context.Context, db database, t *table, from, to uint64, extra []string) (map[sink.Copy]string, error) {
	rows, err := db.rows(ctx, t, from, to)
	if err != nil {
		return nil, err
	}
	rendered := t.render(rows)
	filled := map[sink.Copy]string{}
	fill := func(key, value string) error {
		d.used[key] = true
		for _, c := range d.ring.copies(key) {
			filled[c] = value
			if err := d.stage.nodes.set(c, value); err != nil {
				return err
			}
		}
		return nil
	}
	for key, value := range rendered {
		if err := fill(key, value); err != nil {
			return nil, err
		}
	}
	for _, key := range extra {
		if _, ok := rendered[key]; ok {
			continue
		}
		if err := fill(key, notFound); err != nil {
			return nil, err
		}
	}
	held, err := d.stage.nodes.look(copiesOf(filled))
	if err != nil {
		return nil, err
	}
	d.shown += len(filled)
	d.missing = append(d.missing, lost(filled, held)...)
	return filled, nil
}

// perform fills, commits, waits, looks and tells.
func (d *demo) perform(ctx context.Context, sc *scene) error {
	from, to := sc.span()
	missing := len(d.missing)
	filled, err := d.prepare(ctx, sc.db, sc.table, from, to, sc.keys)
	if err != nil {
		return err
	}
	missing = len(d.missing) - missing
	keys := make(map[string]bool, len(sc.keys))
	for _, k := range sc.keys {
		keys[k] = true
	}
	mark := d.sight.mark()
	sent, err := sc.db.exec(ctx, sc.writes...)
	if err != nil {
		return err
	}
	d.records += sc.records
	rounds, err := d.firstRounds(ctx, mark, keys, sc.records)
	if err != nil {
		return err
	}
	last, deleted := sent, []sink.Copy(nil)
	for _, r := range rounds {
		if r.acked.After(last) {
			last = r.acked
		}
		deleted = append(deleted, r.copies...)
	}
	// One reader asks at once, and caches the row as it is now.
	if err := d.readThrough(ctx, sc.db, sc.table, from, to, sc.keys[:1]); err != nil {
		return err
	}
	v, err := d.lookAgain(ctx, sc, filled)
	if err != nil {
		return err
	}
	d.tell(sc, filled, deleted, v, last.Sub(sent), missing)
	if sc.slow {
		return d.slowReader(ctx, sc, filled, last)
	}
	return nil
}

// span is the rows of the step that change, before and after.
func (sc *scene) span() (from, to uint64) {
	from, to = ^uint64(0), 0
	for _, c := range sc.changes {
		for _, r := range []row{c.before, c.after} {
			if r != nil {
				from, to = min(from, r.id()), max(to, r.id())
			}
		}
	}
	return from, to
}

// lookAgain compares the copies that were filled with the rows as they are now.
func (d *demo) lookAgain(ctx context.Context, sc *scene, filled map[sink.Copy]string) (verdict, error) {
	from, to := sc.span()
	rows, err := sc.db.rows(ctx, sc.table, from, to)
	if err != nil {
		return verdict{}, err
	}
	want := map[string]string{}
	for key, value := range sc.table.render(rows) {
		for _, wire := range d.ring.wires(key) {
			want[wire] = value
		}
	}
	held, err := d.stage.nodes.look(copiesOf(filled))
	if err != nil {
		return verdict{}, err
	}
	v := judge(copiesOf(filled), held, want)
	d.stale = append(d.stale, v.stale...)
	return v, nil
}

// readThrough asks for keys as readers do: where a copy is missing it is filled from the row, where it is there it is left.
func (d *demo) readThrough(ctx context.Context, db database, t *table, from, to uint64, keys []string) error {
	rows, err := db.rows(ctx, t, from, to)
	if err != nil {
		return err
	}
	rendered := t.render(rows)
	for _, key := range keys {
		value, ok := rendered[key]
		if !ok {
			value = notFound
		}
		copies := d.ring.copies(key)
		held, err := d.stage.nodes.look(copies)
		if err != nil {
			return err
		}
		for _, c := range copies {
			if _, there := held[c]; there {
				continue
			}
			if err := d.stage.nodes.set(c, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// slowReader puts the old values back after the first round, whose last copy was acknowledged at last, and shows that the
// second round takes them.
func (d *demo) slowReader(ctx context.Context, sc *scene, filled map[sink.Copy]string, last time.Time) error {
	for c, old := range filled {
		if err := d.stage.nodes.set(c, old); err != nil {
			return err
		}
	}
	if stalled := time.Since(last); stalled > d.stage.settle*3/4 {
		// What stalls longer than settle is outside the promise, and this machine is that slow now.
		d.detail("slow    it took %s to fill, too close to settle: the reader takes its values back", ms(stalled))
		return d.stage.nodes.forget(wiresOf(filled))
	}
	if err := d.sight.settled(ctx, stepLimit, d.records); err != nil {
		return err
	}
	v, err := d.lookAgain(ctx, sc, filled)
	if err != nil {
		return err
	}
	d.detail("slow    it put the old row back on %d copies; the second round, %v later: %s",
		len(filled), d.stage.settle, d.staleCount(v))
	return nil
}

func wiresOf(filled map[sink.Copy]string) []string {
	var out []string
	for c := range filled {
		out = append(out, c.Key)
	}
	return out
}

func copiesOf(filled map[sink.Copy]string) []sink.Copy {
	out := make([]sink.Copy, 0, len(filled))
	for c := range filled {
		out = append(out, c)
	}
	return out
}
