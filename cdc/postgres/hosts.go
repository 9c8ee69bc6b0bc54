package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// gatherTime is how long the other hosts may answer after the first has: of two primaries the older one is not to be read.
const gatherTime = time.Second

// answer is what a host said.
type answer struct {
	conn     *pgx.Conn
	timeline string // of a primary, as hexadecimal digits; promotions count up
	err      error
}

func (a answer) newer(b answer) bool { return a.timeline > b.timeline }

// connect finds the host to read: a primary, or a standby where that is asked for. All hosts are asked at once, so that one
// that does not answer holds up nothing. Of several primaries, one of which was replaced and came back, that of the newest
// timeline is taken; else the first of the list.
func (f *Feeder) connect(ctx context.Context) (host string, conn *pgx.Conn, err error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([]answer, len(f.cfg.Hosts))
	answered := make(chan int, len(answers))
	for i, host := range f.cfg.Hosts {
		go func() {
			answers[i] = f.ask(asking, host)
			answered <- i
		}()
	}
	best := -1
	var late <-chan time.Time
	for left := len(answers); left > 0; {
		select {
		case i := <-answered:
			left--
			if answers[i].err == nil && (best < 0 || answers[i].newer(answers[best]) || !answers[best].newer(answers[i]) && i < best) {
				best = i
			}
			if best >= 0 && late == nil {
				late = time.After(gatherTime)
			}
		case <-late: // whoever is still asked gives up
			cancel()
		}
	}
	for i := range answers {
		if i != best && answers[i].conn != nil {
			closeConn(answers[i].conn.PgConn())
		}
	}
	if best < 0 {
		return "", nil, f.noHost(answers)
	}
	return f.cfg.Hosts[best], answers[best].conn, nil
}

func (f *Feeder) ask(ctx context.Context, host string) (a answer) {
	a.conn, a.err = f.connectTo(ctx, host)
	if a.err != nil || f.cfg.Standby || len(f.cfg.Hosts) == 1 {
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if a.err = a.conn.QueryRow(ctx, "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)").Scan(&a.timeline); a.err != nil {
		closeConn(a.conn.PgConn())
		a.conn = nil
	}
	return a
}

// noHost says why none can be read. An answer that another host would give too (a wrong password) stands for all.
func (f *Feeder) noHost(answers []answer) error {
	var errs []error
	for i, a := range answers {
		for _, state := range []string{stateInvalidPassword, stateInvalidAuth, stateNoDatabase, stateNoPrivilege} {
			if isState(a.err, state) {
				return during("connecting to "+f.cfg.Hosts[i], a.err)
			}
		}
		errs = append(errs, fmt.Errorf("host %s: %w", f.cfg.Hosts[i], a.err))
	}
	return during("connecting", errors.Join(errs...))
}
