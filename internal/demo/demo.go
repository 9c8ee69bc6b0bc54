package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"invalidator/internal/ui"
	"invalidator/mapping"
	"invalidator/sink"
)

// ErrFailed says that a copy was stale, or was not there when it should have been. The offenders have been told.
var ErrFailed = errors.New("the demo failed")

// DefaultUpdates is how many updates of each database the latency part measures.
const DefaultUpdates = 200

// Options say what is played, and where.
type Options struct {
	Embedded bool     // in this process; Services is not used
	Services Services // where the real ones listen
	Updates  int      // of each database in the latency part; default 200
	Out      io.Writer
	Log      *slog.Logger // of the parts; nil: a file, which is kept when the demo fails

	wrap func(sink.Deleter) sink.Deleter // leaves something out, for tests; nil: nothing
}

// demo is one performance. It is one goroutine's, but for what latencies starts.
type demo struct {
	stage   *stage
	parts   *parts
	sight   *sight
	ring    *ring
	out     *ui.Printer
	start   uint64 // the demo's first id: nobody else has keys near it
	updates int

	used    map[string]bool      // every key that was ever cached
	quiet   map[sink.Copy]string // the copies of rows that nobody changes
	records int                  // that the change topics should have got
	shown   int                  // copies that were looked for before a commit
	missing []offender
	stale   []offender
}

// base is the first id of the nth database.
func (d *demo) base(nth int) uint64 { return d.start + uint64(nth)*perDatabase }

// keys are those ever used, sorted.
func (d *demo) keys() []string { return slices.Sorted(maps.Keys(d.used)) }

// Run plays the demo and removes what it made. Its error is ErrFailed where a copy was not as it should be.
func Run(ctx context.Context, o Options) (err error) {
	began := time.Now()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	out := ui.New(o.Out)
	out.Failed = func(err error) { leave(fmt.Errorf("telling the story: %w", err)) }
	id := fmt.Sprintf("%06x", rand.Uint32()&0xffffff)
	log, err := openLog(o.Log, id)
	if err != nil {
		return err
	}
	defer func() { log.close(out, err, ctx.Err() != nil) }()
	s, err := setStage(ctx, id, o)
	if s != nil {
		defer func() { err = cmp.Or(err, leaveStage(ctx, s, out, began)) }()
	}
	if err != nil {
		return err
	}
	d := &demo{
		stage: s, out: out, updates: cmp.Or(o.Updates, DefaultUpdates), used: map[string]bool{},
		// Twelve digits, far above what tests and people use.
		start: 100_000_000_000 + rand.Uint64N(80_000)*10*perDatabase,
	}
	d.introduce(log.name())
	return d.run(ctx, log.Logger, o.wrap)
}

// leaveStage removes what the demo made, and says so.
func leaveStage(ctx context.Context, s *stage, out *ui.Printer, began time.Time) error {
	if ctx.Err() != nil {
		out.Line("\ninterrupted: removing what the demo made")
	}
	if err := s.strike(ctx); err != nil {
		out.Line("%s", out.Bad(err.Error()))
		return err
	}
	out.Line("everything that the demo made is removed again; it took %.1f s", time.Since(began).Seconds())
	return nil
}

func setStage(ctx context.Context, id string, o Options) (*stage, error) {
	if o.Embedded {
		return embedded(id)
	}
	return onServices(ctx, id, o.Services)
}

// run starts the parts, plays, and stops the parts.
func (d *demo) run(ctx context.Context, log *slog.Logger, wrap func(sink.Deleter) sink.Deleter) (err error) {
	s := d.stage
	s.later("the keys of the demo", func(context.Context) error { return d.forget() })
	if d.ring, err = newRing(ctx, s.publisher, s.nodes); err != nil {
		return err
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	ctx, d.parts, err = newParts(ctx, cfg, log)
	if err != nil {
		return err
	}
	s.later("the topics and the group demo-"+s.id, func(ctx context.Context) error { return removeTopics(ctx, s) })
	defer d.parts.stop()
	d.sight = d.parts.sight
	if err := d.setUp(ctx, wrap); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	for nth, st := range steps {
		if err := d.play(ctx, nth, st); err != nil {
			return err
		}
	}
	if err := d.latencies(ctx); err != nil {
		return err
	}
	if err := d.play(ctx, len(steps), resizing); err != nil {
		return err
	}
	if err := d.sight.settled(ctx, stepLimit, d.records); err != nil {
		return err
	}
	if err := d.readersReturn(ctx); err != nil {
		return err
	}
	return d.check(ctx)
}

// setUp starts the feeder, fills the tables, starts the workers and waits until they have worked off what was filled.
func (d *demo) setUp(ctx context.Context, wrap func(sink.Deleter) sink.Deleter) error {
	s := d.stage
	d.out.Title("Setting up")
	d.out.Line("  ring epoch 1: s00 = m1 and its replica m2, s01 = m3 and its replica m4")
	d.out.Line("  it stands in %s", s.publisher.about())
	set, problems, err := mapping.Load(s.mappings())
	if err != nil {
		return err
	}
	if mapping.HasErrors(problems) {
		return fmt.Errorf("the demo's mapping files: %v", problems)
	}
	d.out.Line("  %s:", strings.Join(mappingNames(), " and "))
	for _, t := range set.Templates() {
		hot := ""
		if t.Hot > 0 {
			hot = fmt.Sprintf("   hot: %d", t.Hot)
		}
		d.out.Line("    %s%s", t.Text, hot)
	}
	if err := d.parts.feed(ctx, s.newFeeder); err != nil {
		return err
	}
	rows := 0
	for i, db := range s.databases {
		n, err := d.seed(ctx, db, d.base(i))
		if err != nil {
			return err
		}
		rows += n
	}
	if err := d.parts.topicsMade(ctx, len(s.databases)*len(tables)); err != nil {
		return err
	}
	d.out.Line("  a feeder reads %d databases; %d rows were inserted", len(s.databases), rows)
	shared, err := d.parts.work(ctx, wrap)
	if err != nil {
		return err
	}
	if err := d.sight.settled(ctx, startLimit, d.records); err != nil {
		return err
	}
	d.out.Line("  %d workers share %d partitions of %d change topics, and have worked off the inserts", workers, shared, len(s.databases)*len(tables))
	d.out.Line("  times below: from just before the commit is sent to the acknowledgement of the last copy")
	return d.rest(ctx)
}

// seed inserts the rows of all steps.
func (d *demo) seed(ctx context.Context, db database, base uint64) (int, error) {
	rows := map[*table][]row{}
	add := func(t *table, from uint64, n int) {
		for i := range n {
			rows[t] = append(rows[t], t.seed(from+uint64(i)))
		}
	}
	for nth, st := range append(slices.Clone(steps), resizing) {
		add(st.table, first(base, nth), st.rows)
	}
	add(users, base+firstQuiet, quietRows)
	add(users, base+firstPaced, d.updates)
	var writes []write
	n := 0
	for _, t := range tables {
		writes = append(writes, insert(t, rows[t]...))
		n += len(rows[t])
	}
	d.records += n
	_, err := db.exec(ctx, writes...)
	return n, err
}

// rest caches rows that nobody changes from here on.
func (d *demo) rest(ctx context.Context) error {
	d.quiet = map[sink.Copy]string{}
	for i, db := range d.stage.databases {
		from := d.base(i) + firstQuiet
		filled, err := d.prepare(ctx, db, users, from, from+quietRows-1, nil)
		if err != nil {
			return err
		}
		maps.Copy(d.quiet, filled)
	}
	return nil
}

// readersReturn lets readers ask for every other key once more: what is missing they fill from the rows, so that the check
// has something to compare, and what is there they leave, so that nothing stale is covered up.
func (d *demo) readersReturn(ctx context.Context) error {
	for i, db := range d.stage.databases {
		for _, t := range tables {
			rows, err := db.rows(ctx, t, d.base(i), d.base(i)+perDatabase-1)
			if err != nil {
				return err
			}
			var keys []string
			for n, r := range rows {
				if key := t.key(r); n%2 == 0 && d.used[key] {
					keys = append(keys, key)
				}
			}
			if err := d.readThrough(ctx, db, t, d.base(i), d.base(i)+perDatabase-1, keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget deletes the demo's keys on every node.
func (d *demo) forget() error {
	if d.ring == nil {
		return nil
	}
	var wires []string
	for _, key := range d.keys() {
		wires = append(wires, d.ring.wires(key)...)
	}
	return d.stage.nodes.forget(wires)
}
