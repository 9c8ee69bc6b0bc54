package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"invalidator/cdc"
)

// Which host is read. A host serves a position when its log holds everything behind it and its data holds everything before it.
// One that does not may do so later: it is down, or a replica that has not come as far. Or it never will: that is a gap. The two
// are told apart by who decides what the data is. A server that may be written, replicates from nobody and is in no cluster
// decides: what it lacks has never happened. A replica lacks what its source will send it, unless it has applied everything that its running
// replication has received, and still does for hostPatience: then its source lacks it too. A log that was purged is no gap
// while another host may still come back with it, for hostPatience again.

// hostPatience is how long a source waits for hosts before it calls a gap what only they could fill.
const hostPatience = 2 * time.Minute

// replicaPatience is how long one attempt waits for a replica that is behind.
const replicaPatience = 3 * time.Second

// verdict is what a host is good for.
type verdict int

const (
	serves   verdict = iota
	later            // it cannot serve now; nobody knows that it never will
	laterGap         // it cannot serve, and is a gap after hostPatience
	gapHere          // it cannot serve, and only another host could
	gapSure          // what it says counts for all of them
	unfit            // it cannot be fed from, whatever the position
)

// judged is a host with what was found.
type judged struct {
	verdict verdict
	conn    *conn
	track   *tracker
	err     *cdc.SourceError // of all but serves
}

// choose connects to the first host that serves from, and gives the place to begin at: from's, or the present end of the log
// for the zero position.
func (f *Feeder) choose(ctx context.Context, from cdc.Position) (*conn, *tracker, error) {
	var all []judged
	for _, addr := range f.cfg.Hosts {
		j := f.judge(ctx, addr, from)
		if j.verdict == serves {
			f.unserved = time.Time{}
			return j.conn, j.track, nil
		}
		if j.conn != nil {
			j.conn.close()
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		all = append(all, j)
	}
	return nil, nil, f.nobody(all, from)
}

// nobody decides between a gap, an error for a person, and another attempt.
func (f *Feeder) nobody(all []judged, from cdc.Position) error {
	if f.unserved.IsZero() {
		f.unserved = time.Now()
	}
	patient := time.Since(f.unserved) < hostPatience
	worst, waits := all[0], 0
	var texts []string
	for _, j := range all {
		texts = append(texts, j.err.Err.Error())
		if j.verdict == later || j.verdict == laterGap {
			waits++
		}
		if rank(j.verdict) > rank(worst.verdict) {
			worst = j
		}
	}
	isGap := worst.verdict == gapSure || (worst.verdict == gapHere || worst.verdict == laterGap) && (waits == 0 || !patient)
	if isGap || len(all) == 1 && worst.verdict != laterGap || worst.verdict == unfit && waits == 0 {
		return worst.err
	}
	e := f.fail(errors.New(strings.Join(texts, "; ")), "no host can serve the saved position now; it is tried again", true)
	e.At = from
	return e
}

// rank orders verdicts by how much they decide.
func rank(v verdict) int {
	return map[verdict]int{unfit: 1, later: 0, laterGap: 2, gapHere: 3, gapSure: 4}[v]
}

// judge looks at one host.
func (f *Feeder) judge(ctx context.Context, addr string, from cdc.Position) judged {
	c, err := f.connectTo(ctx, addr)
	if err != nil {
		return f.unserving(judged{}, err)
	}
	j := judged{conn: c}
	if err := f.refuse(c.server); err != nil {
		return f.unserving(j, err)
	}
	role, err := c.role()
	if err != nil {
		return f.unserving(j, f.classify(fmt.Errorf("asking %s whether it is a replica: %w", addr, err), from))
	}
	if role.replica && !c.server.logsReplicated() {
		return f.unserving(j, f.fail(fmt.Errorf("%s is a replica that does not log what it replicates", addr), logReplicatedHint, false))
	}
	if from.IsZero() {
		if j.track, err = presentEnd(c); err != nil {
			return f.unserving(j, f.classify(fmt.Errorf("asking for the server's position: %w", err), from))
		}
		return j
	}
	if j.track, err = parsePosition(c.server, from); err != nil {
		e := f.fail(err, "point the source at the kind of server that it was fed from, or remove its saved position to start anew", false)
		e.At = from
		return f.unserving(j, e)
	}
	if err := f.compare(ctx, c, &j, role, from); err != nil {
		return f.unserving(j, f.classify(fmt.Errorf("comparing the saved position with that of %s: %w", addr, err), from))
	}
	return j
}

// unserving is a host that could not be asked, or that cannot be fed from.
func (f *Feeder) unserving(j judged, err error) judged {
	if j.verdict = unfit; !errors.As(err, &j.err) {
		j.err = f.fail(err, "", true)
	}
	if j.err.Retry {
		j.verdict = later
	}
	return j
}

// compare judges a host by the position.
func (f *Feeder) compare(ctx context.Context, c *conn, j *judged, role role, from cdc.Position) error {
	same := from.ServerUUID == c.server.id
	if same && from.File != "" {
		anew, torn, err := c.begunAnew(place{from.File, from.Pos})
		if err != nil {
			return err
		}
		if anew != "" && torn && (j.track.executed != nil || j.track.domains != nil) {
			// What the sets lack is what was lost. Where they lack nothing, it is another log.
			compare := f.compareSets
			if c.server.maria {
				compare = f.compareDomains
			}
			if err := compare(c, j, role, from); err != nil || j.verdict != serves {
				return err
			}
		}
		if anew != "" {
			j.verdict = gapSure
			j.err = f.gap(from, fmt.Errorf("the log of %s was begun anew, or is not the one that was read: %s", c.server.addr, anew))
			return nil
		}
	}
	switch {
	case j.track.executed != nil:
		return f.compareSets(c, j, role, from)
	case j.track.domains != nil:
		if err := f.compareDomains(c, j, role, from); err != nil || j.verdict != serves || len(f.cfg.Hosts) == 1 {
			return err // with one host the dump says the same
		}
		return f.probe(ctx, c, j, from)
	case !same:
		j.verdict = gapHere
		j.err = f.gap(from, fmt.Errorf("%s:%d is a place in the files of server %s, and %s is server %s: without GTIDs it cannot be found there",
			from.File, from.Pos, from.ServerUUID, c.server.addr, c.server.id))
		return nil
	}
	return f.compareFiles(c, j, from)
}

// lacks judges a host whose data does not hold what we have read. wait is a query that waits for it, and gives 0 when it has come.
func (f *Feeder) lacks(c *conn, j *judged, role role, from cdc.Position, missing, wait string, undone func(*cdc.RowChange) bool) error {
	gap := &cdc.GapError{Undone: undone, UndoneText: missing,
		Err: fmt.Errorf("%s never had %s: it is another server, was reset, or lost commits in a failover", c.server.addr, missing)}
	j.verdict, j.err = gapSure, f.gapOf(from, gap)
	switch {
	case role.replica:
		rows, err := c.rows(wait)
		if err != nil {
			return err
		}
		if rows[0][0] == "0" {
			j.verdict, j.err = serves, nil
			return nil
		}
		now, err := c.role()
		if err != nil {
			return err
		}
		if !now.caughtUp {
			j.verdict = later
			j.err = f.fail(fmt.Errorf("%s is a replica that has not come as far: it lacks %s", c.server.addr, missing),
				"is its replication running? "+now.state, true)
			break
		}
		j.verdict = laterGap
		gap.Err = fmt.Errorf("%w, and what it replicates from has nothing more for it", gap.Err)
	case c.server.clustered():
		j.verdict = laterGap // it may be on its way
		gap.Err = fmt.Errorf("%w; it has not come from its cluster", gap.Err)
	case isOn(c.server.vars["read_only"]):
		j.verdict = laterGap // not promoted yet, perhaps
		gap.Err = fmt.Errorf("%w; it is read-only and replicates from nobody", gap.Err)
	}
	j.err.At = from
	return nil
}

// probe asks whether a dump can begin: MariaDB says only then whether its log still holds what follows.
func (f *Feeder) probe(ctx context.Context, c *conn, j *judged, from cdc.Position) error {
	d, err := f.openDump(ctx, c.server, j.track, toLook)
	if err == nil {
		defer d.close()
		_, err = d.next()
	}
	if err == nil {
		return nil
	}
	if err = f.classify(err, from); errors.Is(err, cdc.ErrGap) {
		j.verdict = gapHere
		errors.As(err, &j.err)
		return nil
	}
	return err
}
