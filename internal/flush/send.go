package flush

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"invalidator/sink"
)

const (
	lookEvery = time.Second     // at the load and the orders, while a part is deleted
	tellEvery = 2 * time.Second // how far a part is
)

// tally counts what became of copies.
type tally struct {
	keys    int64 // of copies, those that readers ask first
	copies  int64 // that were deleted, marked stale, or not there any more
	kept    int64 // that stay: they were filled since
	refused int64 // that stay: the node does not take them
}

func (t tally) plus(o tally) tally {
	return tally{t.keys + o.keys, t.copies + o.copies, t.kept + o.kept, t.refused + o.refused}
}

func (r *run) add(t tally) {
	r.keys, r.copies, r.kept, r.refused = r.keys+t.keys, r.copies+t.copies, r.kept+t.kept, r.refused+t.refused
}

// counter counts answers. It is a sink.Waiter of each copy that was sent.
type counter struct {
	first func(wire string) bool // whether readers ask for it there first
	most  int                    // of those that had another CAS value are remembered

	mu struct {
		sync.Mutex
		tally
		left    int      // that are not answered
		changed []string // had another CAS value
		sample  error    // of what was refused
		off     error    // the node went off
		done    chan struct{}
	}
}

// sent counts copies that are about to be sent.
func (c *counter) sent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.left += n
}

// Acked implements sink.Waiter.
func (c *counter) Acked(cp sink.Copy, err error) {
	first := err == nil && c.first(cp.Key)
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed *sink.ChangedError
	var off *sink.OffError
	switch {
	case err == nil:
		c.mu.copies++
		if first {
			c.mu.keys++
		}
	case errors.As(err, &changed):
		c.mu.kept++
		if len(c.mu.changed) < c.most {
			c.mu.changed = append(c.mu.changed, cp.Key)
		}
	case errors.As(err, &off):
		c.mu.off = err
	default:
		c.mu.refused++
		c.mu.sample = err
	}
	if c.mu.left--; c.mu.left == 0 && c.mu.done != nil {
		close(c.mu.done)
		c.mu.done = nil
	}
}

// answered is closed when all that was sent is answered.
func (c *counter) answered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	if c.mu.left == 0 {
		close(done)
	} else {
		c.mu.done = done
	}
	return done
}

// soFar is what was answered.
func (c *counter) soFar() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.tally
}

// remembered is how much of the memory for candidates there is for each key that is remembered, since it had another CAS value: 65,536 of them, of some 50 bytes.
const remembered = 512

// send deletes so many candidates of a part at the job's pace, and stands still while the load is above its limit. It returns when all are answered, with the keys that had another CAS
// value: some of them, where they are too many.
func (v *visit) send(ctx context.Context, part, left int, list iter.Seq[candidate]) (done tally, changed []string, err error) {
	c := &counter{first: v.s.firstAsked(v.node), most: v.o.Arena / remembered}
	var staleFor time.Duration
	if v.j.Stale {
		staleFor = staleTime(v.j.StaleFor)
	}
	looks := looks{time.Now(), time.Now()}
	v.pace.set(v.j.Pace)
	may := 0
	for one := range list {
		if may == 0 {
			err := v.look(ctx, part, c, &looks)
			if err == nil {
				may, err = v.pace.pass(ctx, left)
			}
			if err != nil {
				return tally{}, nil, err
			}
			c.sent(may)
		}
		may, left = may-1, left-1
		if err := v.o.Nodes.DeleteIf(ctx, sink.Copy{Node: v.node, Key: string(one.wire)}, one.cas, staleFor, c); err != nil {
			return tally{}, nil, err
		}
	}
	select {
	case <-c.answered():
	case <-ctx.Done():
		return tally{}, nil, ctx.Err()
	}
	return v.outcome(c)
}

// looks are when it was last looked whether a part may go on, and told how far it is.
type looks struct{ looked, told time.Time }

// look returns when a part may go on, and tells how far it is: each at its time.
func (v *visit) look(ctx context.Context, part int, c *counter, l *looks) error {
	now := time.Now()
	if now.Sub(l.looked) < lookEvery {
		return nil
	}
	l.looked = now
	if err := v.goesOn(ctx); err != nil || now.Sub(l.told) < tellEvery {
		return err
	}
	l.told = now
	return v.tellPart(ctx, part, c.soFar(), false)
}

// outcome is what became of all that was sent. Nothing is answered any more.
func (v *visit) outcome(c *counter) (done tally, changed []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.off != nil {
		return tally{}, nil, c.mu.off
	}
	if c.mu.sample != nil {
		v.j.run.sample = c.mu.sample
	}
	v.metrics.keys.WithLabelValues(keysDeleted).Add(float64(c.mu.copies))
	v.metrics.keys.WithLabelValues(keysRefused).Add(float64(c.mu.refused))
	return c.mu.tally, c.mu.changed, nil
}

// staleTime is for how long a copy is marked stale.
func staleTime(seconds int64) time.Duration {
	if seconds == 0 {
		return defaultStale
	}
	return time.Duration(seconds) * time.Second
}

const defaultStale = 30 * time.Second

// pacer spreads copies over time.
type pacer struct {
	every time.Duration
	next  time.Time
}

const (
	// burst is how much of a second may go at once.
	burst = 20 * time.Millisecond
	// atOnce is how many copies go without another look at the clock, which costs as much as one of them.
	atOnce = 64
)

// set has so many a second pass from now on.
func (p *pacer) set(perSecond int64) { p.every = time.Second / time.Duration(max(perSecond, 1)) }

// pass returns when the next one may pass, and how many may with it: at most so many.
func (p *pacer) pass(ctx context.Context, most int) (n int, err error) {
	now := time.Now()
	if p.next.Before(now.Add(-burst)) {
		p.next = now.Add(-burst)
	}
	if early := p.next.Add(p.every).Sub(now); early >= burst/2 {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(early):
			now = now.Add(early)
		}
	}
	n = min(max(int(now.Add(burst/2).Sub(p.next)/p.every), 1), most, atOnce)
	p.next = p.next.Add(time.Duration(n) * p.every)
	return n, nil
}
