package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// Config says which server to read and what of it. Times are always shown in UTC.
type Config struct {
	Name     string   // the source's name, in changes, errors and logs
	Hosts    []string // host:port; the first that can serve what is to be read is read
	User     string
	Password func() string // asked at each connection, since it may change; nil: none

	// TLS asks for an encrypted connection; nil: none. An empty ServerName takes the host's, and an empty list of cipher suites
	// adds plain RSA key exchange behind the usual ones, which is all that early builds of MySQL 8.0 speak.
	TLS *tls.Config

	// ServerID is what this reader is called in the replication topology, where it must be unique. 0: derived from Name, the
	// same at each start, from 3,000,000,000 on.
	ServerID uint32

	Include *cdc.Include

	// For Check alone. MaxTTL is how long caches keep values: a log that is kept for less is told. Settle is how long the second
	// delete waits: commits that may be read from the log longer before they are visible are told. 0: not compared.
	MaxTTL, Settle time.Duration
}

// Times of the connection. A server that is silent for readTimeout is taken for dead: it has missed four heartbeats.
const (
	dialTimeout     = 5 * time.Second
	heartbeatPeriod = 2 * time.Second
	readTimeout     = 8 * time.Second

	// How long the server waits for us while the Handler holds us back, before it hangs up and we resume. Long, because a
	// broker's outage is no reason to reconnect, and finite, because a vanished reader must not hold a thread of the server.
	netWriteTimeout = 10 * time.Minute
)

// Feeder reads one MySQL or MariaDB server. It implements cdc.Feeder.
type Feeder struct {
	cfg     Config
	log     *slog.Logger
	earlier *cdc.Include // see Widen

	remembered map[cdc.TableID][]cdc.Layout // see Remember
	history    cdc.History                  // nil: layouts are kept nowhere

	unserved time.Time // since when no host can serve; Run's own
	current  atomic.Pointer[current]
}

var (
	_ cdc.Feeder    = (*Feeder)(nil)
	_ cdc.Widener   = (*Feeder)(nil)
	_ cdc.Lagger    = (*Feeder)(nil)
	_ cdc.Witness   = (*Feeder)(nil)
	_ cdc.Historian = (*Feeder)(nil)
)

// New checks the configuration; it does not connect.
func New(cfg Config, log *slog.Logger) (*Feeder, error) {
	switch {
	case cfg.Name == "":
		return nil, errors.New("mysql source: a name is needed")
	case len(cfg.Hosts) == 0:
		return nil, fmt.Errorf("source %s: at least one host:port is needed", cfg.Name)
	case cfg.User == "":
		return nil, fmt.Errorf("source %s: a user is needed", cfg.Name)
	}
	if cfg.ServerID == 0 {
		cfg.ServerID = deriveServerID(cfg.Name, 3_000_000_000)
	}
	if cfg.Password == nil {
		cfg.Password = func() string { return "" }
	}
	return &Feeder{cfg: cfg, log: log.With("source", cfg.Name)}, nil
}

// deriveServerID keeps clear of the small numbers that people give to their servers: a thousand million from base on.
func deriveServerID(name string, base uint32) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return base + h.Sum32()%1_000_000_000
}

// Confirm does nothing: a binary log is kept by age and size, whoever has read it.
func (f *Feeder) Confirm(cdc.Position) {}

// Restart implements cdc.Feeder. There is nothing of ours on the server that could be lost: it is the present end of the log of
// the server that a Run would read.
func (f *Feeder) Restart(ctx context.Context) (cdc.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, t, err := f.choose(ctx, cdc.Position{})
	if err != nil {
		return cdc.Position{}, err
	}
	c.close()
	if f.history != nil { // before the position is there: what happened to tables until then nobody saw
		if err := f.history.Replace(ctx, nil); err != nil {
			return cdc.Position{}, err
		}
	}
	return t.position(), nil
}

// Widen implements cdc.Widener.
func (f *Feeder) Widen(earlier *cdc.Include) { f.earlier = earlier }

// Remember implements cdc.Historian.
func (f *Feeder) Remember(known map[cdc.TableID][]cdc.Layout, h cdc.History) {
	f.remembered, f.history = known, h
}

// Run implements cdc.Feeder.
func (f *Feeder) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	err := f.run(run, from, out)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *Feeder) run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	c, track, err := f.choose(ctx, from)
	if err != nil {
		return err
	}
	defer c.close()
	r := newReader(f, c.server, track, f.newHolder(c.server, track, out))
	r.tables.history = newHistory(f, c.server, from)
	if err := r.tables.list(c); err != nil {
		return f.classify(fmt.Errorf("listing the tables of %s: %w", c.server.addr, err), from)
	}
	if r.tables.needed() {
		if err := r.tables.learnAll(ctx, r); err != nil {
			return err
		}
	}
	if err := r.tables.remember(ctx, r); err != nil {
		return err
	}
	c.close() // the dump has a connection of its own, and this one would idle for days
	start := track.position()
	if err := out.Started(ctx, start); err != nil {
		return err
	}
	if joined := r.tables.beyond(c.server.folded(f.earlier)); !from.IsZero() && f.earlier != nil && len(joined) > 0 {
		if err := out.Joined(ctx, joined, start); err != nil {
			return err
		}
	}
	s, err := f.openStream(ctx, c.server, track)
	if err != nil {
		if me := (*mysql.MyError)(nil); errors.As(err, &me) && me.Code == mysql.ER_ACCESS_DENIED_ERROR {
			// The account came in a moment ago: what it lacks is the privilege.
			return &cdc.SourceError{Source: f.cfg.Name, At: start, Err: plain(err), Hint: f.grantHint()}
		}
		return f.classify(err, start)
	}
	defer s.close()
	f.log.Info("reading the binary log", "host", c.server.addr, "version", c.server.version, "from", track.String())
	return r.read(ctx, s)
}
