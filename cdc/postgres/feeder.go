package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"invalidator/cdc"
)

// Config is one Postgres source.
type Config struct {
	Name     string   // the source's name
	Hosts    []string // "host:port"; the first that answers and is a primary (see Standby) is used
	Database string
	User     string
	Password func() string // asked at each connection, since it may change; nil: none
	TLS      *tls.Config   // nil: no TLS
	// Publication names the publication that is read; "invalidator" where empty.
	Publication string
	// Slot names the replication slot. Where empty it is "invalidator_<Name>", in lower case, with '_' for whatever a slot's
	// name cannot hold. Slots are the cluster's, not the database's: two sources must not share one.
	Slot    string
	Include *cdc.Include // chooses tables by schema.table
	// Standby reads from a standby server (16 or newer) and not from the primary. The publication is made on the primary.
	Standby bool
	// Heartbeat is how often a message of our own is written into the log, so that it moves on where nothing else is written at
	// all; zero: never. Where other tables or databases are written it is not needed.
	Heartbeat time.Duration
	// AllowPartial accepts tables of which the publication sends only some rows or columns: Check warns of them then.
	AllowPartial bool
	// MaxTTL is for how long caches keep what they hold, for Check alone; zero: unknown.
	MaxTTL time.Duration
	// Settle is after how long deletes are repeated, for Check alone; zero: unknown.
	Settle time.Duration
}

// Feeder reads one database's log by logical replication. It is a cdc.Feeder.
type Feeder struct {
	cfg    Config
	log    *slog.Logger
	timing timing

	// confirmed is the highest LSN that Confirm told since Run began, or where Run began. Nothing above it is ever reported to
	// the server as flushed.
	confirmed atomic.Uint64

	// handed is the transaction of which this process has handed over changes last, by where its commit record ends, or begins
	// while the end is not known.
	handed atomic.Pointer[cdc.Position]

	reached  atomic.Pointer[progress] // of this Run
	measured atomic.Pointer[Status]

	outside outside // Run's
	fork    lsn     // Run's: where the server's timeline left the one of the position that it began at; 0: it did not, or there was none
}

var (
	_ cdc.Feeder  = (*Feeder)(nil)
	_ cdc.Lagger  = (*Feeder)(nil)
	_ cdc.Witness = (*Feeder)(nil)
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// New checks cfg and asks no server.
func New(cfg Config, log *slog.Logger) (*Feeder, error) {
	if cfg.Publication == "" {
		cfg.Publication = "invalidator"
	}
	if cfg.Slot == "" {
		cfg.Slot = defaultSlot(cfg.Name)
	}
	if cfg.Password == nil {
		cfg.Password = func() string { return "" }
	}
	var wrong []error
	if cfg.Name == "" {
		wrong = append(wrong, errors.New("it has no name"))
	}
	if len(cfg.Hosts) == 0 {
		wrong = append(wrong, errors.New("it has no hosts"))
	}
	for _, h := range cfg.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			wrong = append(wrong, fmt.Errorf("host %q is not host:port", h))
		}
	}
	if cfg.Database == "" {
		wrong = append(wrong, errors.New("it has no database"))
	}
	if cfg.User == "" {
		wrong = append(wrong, errors.New("it has no user"))
	}
	if !slotName.MatchString(cfg.Slot) {
		wrong = append(wrong, fmt.Errorf("slot %q is not a slot's name: 1 to 63 of a-z, 0-9 and _", cfg.Slot))
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("source %q: %w", cfg.Name, errors.Join(wrong...))
	}
	return &Feeder{cfg: cfg, log: log.With("source", cfg.Name), timing: defaultTiming, outside: outside{seen: &memory{}, told: map[uint32]bool{}}}, nil
}

func defaultSlot(source string) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower("invalidator_"+source))
	return s[:min(len(s), 63)]
}

// Confirm implements cdc.Feeder. The server hears of it with the next status message, within timing.status.
func (f *Feeder) Confirm(p cdc.Position) {
	at, err := parseLSN(p.LSN)
	if err != nil { // another kind of source's position: nothing to confirm here
		return
	}
	for {
		old := f.confirmed.Load()
		if uint64(at) <= old || f.confirmed.CompareAndSwap(old, uint64(at)) {
			return
		}
	}
}

// Run implements cdc.Feeder.
func (f *Feeder) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	err := f.run(ctx, from, out)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return f.runError(err)
}

func (f *Feeder) run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	s, err := f.open(ctx, from)
	if err != nil {
		return err
	}
	defer s.close()
	f.reached.Store(&progress{at: s.start})
	w := f.newWatcher(s)
	seen, err := w.first(ctx, from)
	if err != nil {
		return err
	}
	f.confirmed.Store(uint64(s.start))
	if err := out.Started(ctx, s.origin.position(s.start)); err != nil {
		return handlerFailed(err)
	}
	st, err := s.stream(ctx, f.cfg, f.timing, func() lsn { return lsn(f.confirmed.Load()) })
	if err != nil {
		return err
	}
	defer st.close()
	f.log.Info("reading the log", "slot", f.cfg.Slot, "publication", f.cfg.Publication, "from", s.start.String())

	d := &decoder{
		source: f.cfg.Name, origin: s.origin, out: out, done: s.start, handed: &f.handed, reached: &f.reached,
		slot: f.cfg.Slot, hold: f.newHolder(s), relations: newRelations(f.cfg.Database, f.cfg.Include, s.catalog.describe, f.log),
	}
	if seen != nil {
		if err := d.see(ctx, seen); err != nil {
			return err
		}
		f.outside = seen.then
	}
	return f.read(ctx, st, d, w)
}

// read receives, hands over and watches until one of them ends.
func (f *Feeder) read(ctx context.Context, st *stream, d *decoder, w *watcher) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	queue := newQueue()
	received, watched := make(chan error, 1), make(chan error, 1)
	go func() {
		defer close(queue.items)
		err := st.receive(working, queue)
		if err != nil {
			f.log.Warn("the connection to the server has ended: what it has sent is handed over first", "error", oneLine{err})
		}
		received <- err
	}()
	go func() {
		err := w.run(working)
		if err != nil {
			f.log.Warn("the log is read no further", "error", f.explain(err))
			stop()
		}
		watched <- err
	}()
	err := f.deliver(working, queue, w.told, d)
	stop()
	cut := <-received // seen only after everything that came before it was handed over
	if ended := <-watched; ended != nil {
		return ended
	}
	return errors.Join(err, f.lostWhileReading(d.origin.position(d.done), cut))
}

// deliver hands over what is queued until the queue is closed, and what the watcher tells.
func (f *Feeder) deliver(ctx context.Context, q *queue, told <-chan *sighting, d *decoder) error {
	for {
		var it item
		var open bool
		select {
		case it, open = <-q.items:
			if !open {
				return nil
			}
		case s := <-told:
			if err := d.see(ctx, s); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		if it.message != "" {
			err = d.message(ctx, it.message)
		} else {
			err = d.idle(ctx, it.end, it.at)
		}
		q.done(it)
		if err != nil {
			return err
		}
	}
}
