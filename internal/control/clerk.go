package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// Office is the name of the clerk's work: its owner is who owns work partition WorkPartition(Office).
const Office = "control"

// turnTimeout bounds one turn of a clerk.
const turnTimeout = 30 * time.Second

// ClerkOptions are a clerk's parts.
type ClerkOptions struct {
	Group  string
	Worker string // this process, to people
	Kafka  changelog.Options
	Names  changelog.Names
	State  *State                                                            // that a Follower keeps up to date
	Store  *changelog.StateStore                                             // the partitions' states
	Say    func(ctx context.Context, topic, key string, record []byte) error // writes to the control and the status topic
	Match  func(topic string) bool                                           // the change topics that the fleet reads
	Known  func() Known                                                      // what a target can be
	Log    *slog.Logger
}

// Clerk makes plans, and says how replays end, while it holds the office.
type Clerk struct {
	opts    ClerkOptions
	failing bool

	mu struct { // a leaf
		sync.Mutex
		claim uint64    // how often the office came here, if it is here; 0: it is not
		came  uint64    // how often it came
		since time.Time // it has been here
		stop  context.CancelFunc
	}
}

// NewClerk makes one that does not hold the office.
func NewClerk(o ClerkOptions) *Clerk { return &Clerk{opts: o} }

// Claim is changelog.GroupOptions.Work: it is told the work partitions that are ours. It does not wait: what a clerk still writes that has lost the office is
// harmless.
func (c *Clerk) Claim(owned []int32) {
	ours := slices.Contains(owned, changelog.WorkPartition(Office))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ours && c.mu.claim == 0:
		c.mu.came++
		c.mu.claim, c.mu.since = c.mu.came, time.Now()
	case !ours:
		c.mu.claim = 0
		if c.mu.stop != nil {
			c.mu.stop()
		}
	}
}

// office is what a clerk knows while it holds it.
type office struct {
	claim   uint64
	topic   string // the control topic's id
	planner planner
	planned map[string]bool // ids whose plan was written here
	ends    *ends
}

// Run works until ctx ends. Its error is of options with which no client can be made.
func (c *Clerk) Run(ctx context.Context) error {
	cl, err := c.opts.Kafka.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	past, err := changelog.OpenLog(c.opts.Kafka)
	if err != nil {
		return err
	}
	defer past.Close()
	var at *office
	defer func() { at.leave() }()
	adm := kadm.NewClient(cl)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		claim, since, turn, end := c.begin(ctx)
		topic := c.opts.State.Topic()
		if at != nil && (at.claim != claim || at.topic != topic) {
			at.leave()
			at = nil
		}
		var failed error
		// What the clerk before wrote last is known when a look has begun since.
		if claim != 0 && c.opts.State.AsOf().After(since) {
			if at == nil {
				at = &office{claim, topic, planner{c.opts.Worker, adm, c.opts.Match, c.opts.Known}, map[string]bool{}, newEnds(&c.opts, adm, past)}
			}
			failed = errors.Join(c.plan(turn, at), at.ends.turn(turn))
		}
		lost := errors.Is(turn.Err(), context.Canceled)
		end()
		if !lost {
			c.tell(failed)
		}
	}
}

func (o *office) leave() {
	if o != nil {
		o.ends.letGo()
	}
}

// begin begins a turn, which ends early when the office is lost.
func (c *Clerk) begin(ctx context.Context) (claim uint64, since time.Time, turn context.Context, end func()) {
	turn, stop := context.WithTimeout(ctx, turnTimeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.stop = stop
	return c.mu.claim, c.mu.since, turn, func() {
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.stop = nil
	}
}

func (c *Clerk) tell(err error) {
	switch {
	case err != nil && !c.failing:
		c.failing = true
		c.opts.Log.Error("planning replays, or telling how they ended: tried again each second", "error", err)
	case err == nil && c.failing:
		c.failing = false
		c.opts.Log.Info("replays are planned again")
	}
}

// plan writes the plans that are missing. One that fails holds up no other.
func (c *Clerk) plan(ctx context.Context, at *office) (failed error) {
	for _, a := range c.opts.State.unplanned() {
		if at.planned[a.ID] {
			continue // it comes with the follower's next look
		}
		plan, err := at.planner.plan(ctx, &a)
		if err == nil {
			err = c.say(ctx, c.opts.Names.Control, a.ID, plan)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("planning the replay %s of %s: %w", a.ID, a.Target, err))
			continue
		}
		at.planned[a.ID] = true
		args := []any{"id", a.ID, "of", a.Target.String(), "by", a.By, "reason", a.Reason, "dry_run", a.DryRun}
		if plan.Refused != "" {
			c.opts.Log.Warn("a replay is refused", append(args, "why", plan.Refused)...)
		} else {
			c.opts.Log.Info("a replay is planned", append(args, "window", plan.Window, "from", plan.From, "to", plan.To, "partitions", len(plan.Ranges))...)
		}
	}
	return failed
}

func (c *Clerk) say(ctx context.Context, topic, key string, r replay.Record) error {
	value, err := replay.Encode(r)
	if err != nil {
		return err
	}
	return c.opts.Say(ctx, topic, key, value)
}
