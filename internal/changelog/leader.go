package changelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	leaderHeartbeat  = 250 * time.Millisecond // a follower learns within it that the leader has left
	leaderRebalance  = sessionTimeout         // who has not joined again by then is left out
	confirmTimeout   = 5 * time.Second
	previousTimeout  = time.Second
	leaveGroupTime   = time.Second
	leaderPartition  = 0
	quietAfter       = 15 * time.Second // without a session of the group: then that is told
	handOverPatience = 8 * time.Second  // longer than a leader takes to end: its own bound is 6 s
)

// ErrNotLeader says that another member leads now, or may at any moment.
var ErrNotLeader = errors.New("another process leads now")

// LeaderOptions are what a candidate needs to know.
type LeaderOptions struct {
	Options
	Group string // of the candidates of one office; nobody else is in it
	Topic string // Names.Leader
	Self  string // this process, to people and to the choice: unique among the candidates

	Joined *atomic.Bool // whether the group counts this process among its members, as far as it knows; nil: nobody asks
}

// Lead stands for an office of which one candidate holds at a time: it joins the group, and calls lead each time that it
// becomes the leader. It returns when ctx has ended, lead has returned and the group is left, so that a successor comes
// within a heartbeat. Its error is a configuration that cannot work; whatever goes wrong with the group is logged and tried
// again.
//
// lead must return once its context ends, and not before. That is with ctx, or with cause ErrNotLeader when the brokers say
// that this member is out: it was silent for a session. As long as the brokers cannot be asked, a leader goes on: two who
// both write do no harm here (positions are fenced by their generation, and changes that come twice are deleted twice),
// while none at all would be an outage. What must not be begun without being sure is for Term.Confirm.
func Lead(ctx context.Context, o LeaderOptions, lead func(context.Context, *Term)) error {
	c := &candidate{o: o, ctx: ctx, log: o.Log, changed: make(chan struct{}, 1)}
	c.mu.quiet = time.Now()
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	leaving, left := context.WithCancel(context.WithoutCancel(ctx))
	defer left()
	cl, err := o.Client(append(c.clientOptions(), kgo.WithContext(leaving))...)
	if err != nil {
		return fmt.Errorf("joining the group %s: %w", o.Group, err)
	}
	cl.PauseFetchTopics(o.Topic) // there is nothing in it
	look := time.NewTicker(quietAfter / 3)
	defer look.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look.C:
			c.lookForQuiet()
		case <-c.changed:
			if t := c.begin(); t != nil {
				t.Previous = c.previous(t.ctx, cl)
				lead(t.ctx, t)
				close(t.over)
			}
		}
	}
	limit, cancel := context.WithTimeout(leaving, leaveGroupTime)
	defer cancel()
	defer context.AfterFunc(limit, left)() // a join that waits for a broker holds up the client's end otherwise
	if err := cl.LeaveGroupContext(limit); err != nil {
		c.log.Warn("leaving the group: the brokers notice by themselves, and a successor waits for that", "group", o.Group, "error", err)
	}
	cl.Close()
	return nil
}

// Term is one time of leadership.
type Term struct {
	Generation int32  // of the group when it began: higher than any earlier leader's, as long as the group exists
	Previous   string // who led last, as far as is known; empty: nobody

	c    *candidate
	cl   *kgo.Client
	ctx  context.Context
	end  context.CancelCauseFunc
	over chan struct{} // closed when lead has returned

	// Guarded by the candidate's lock.
	begun  bool // lead was called, or is about to be
	unsure bool // the session is lost, and the brokers have not said what follows
}

// Confirm asks the brokers whether this is still the leader, and leaves its name with them. It is ErrNotLeader where it is
// not, and another error where that is not known. A leader whose process was stopped for a while learns it here before it
// begins anything.
//
// It is an offset commit of the group, which the broker refuses from whoever is no member of the group's present
// generation. The commit also keeps the broker from forgetting a group without members, and with it the generation.
func (t *Term) Confirm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	self := t.c.o.Self
	named := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				req.Topics[i].Partitions[j].Metadata = &self
			}
		}
		return nil
	})
	var refused error
	offsets := map[string]map[int32]kgo.EpochOffset{t.c.o.Topic: {leaderPartition: {Epoch: -1, Offset: 0}}}
	t.cl.CommitOffsetsSync(named, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		refused = err
		if err != nil {
			return
		}
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				refused = errors.Join(refused, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	switch {
	case t.ctx.Err() != nil:
		return context.Cause(t.ctx)
	case t.inDoubt():
		// The commit may have come from the membership that follows, in which another leads.
		return fmt.Errorf("asking whether this process still leads %s: its session is lost, and it joins again", t.c.o.Group)
	case errors.Is(refused, kerr.RebalanceInProgress): // of a member, then
		return nil
	case errors.Is(refused, kerr.UnknownMemberID), errors.Is(refused, kerr.IllegalGeneration), errors.Is(refused, kerr.FencedInstanceID):
		t.end(ErrNotLeader)
		// If the group thinks otherwise (it was just changing), the next assignment begins a new term: without it nobody would lead.
		t.cl.ForceRebalance()
		return ErrNotLeader
	case errors.Is(refused, kerr.UnknownTopicOrPartition), errors.Is(refused, kerr.UnknownTopicID):
		// It was removed, and perhaps made again: the client must meet it anew, which begins a new term.
		t.cl.PurgeTopicsFromConsuming(t.c.o.Topic)
		t.cl.AddConsumeTopics(t.c.o.Topic)
		t.cl.PauseFetchTopics(t.c.o.Topic)
		return fmt.Errorf("asking whether this process still leads %s: %w (start a feeder again: it makes %s)", t.c.o.Group, refused, t.c.o.Topic)
	case refused != nil:
		return fmt.Errorf("asking whether this process still leads %s: %w", t.c.o.Group, refused)
	}
	return nil
}

// inDoubt reports whether the session is lost in which the term began.
func (t *Term) inDoubt() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.unsure
}

// candidate is this process in one group.
type candidate struct {
	o       LeaderOptions
	ctx     context.Context
	log     *slog.Logger
	changed chan struct{} // 1: term is another

	mu struct {
		sync.Mutex
		term  *Term     // nil: another leads
		owned bool      // the group has given us the partition
		told  string    // the last trouble that was logged
		quiet time.Time // since when there is no session; zero: there is one
	}
}

func (c *candidate) clientOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup(c.o.Group), kgo.ConsumeTopics(c.o.Topic),
		kgo.Balancers(leaderBalancer{group: c.o.Group, self: c.o.Self}),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(leaderHeartbeat), kgo.RebalanceTimeout(leaderRebalance),
		kgo.DisableAutoCommit(),
		// A broker that is away is asked for ever: a leader is only over when the brokers say so.
		kgo.RequestRetries(math.MaxInt32), kgo.RetryTimeoutFn(func(int16) time.Duration { return 0 }),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, m map[string][]int32) { c.assigned(cl, m) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { c.revoked(m) }),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) { c.unsure() }),
		kgo.WithHooks(groupTrouble{c}),
	}
}

// assigned is called after each change of the group, with what is ours since.
func (c *candidate) assigned(cl *kgo.Client, m map[string][]int32) {
	c.tell("")
	c.join(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.quiet = time.Time{}
	anew := len(m[c.o.Topic]) > 0
	c.mu.owned = c.mu.owned || anew
	was := c.mu.term
	if was != nil && (anew || was.unsure) { // one that was in doubt is over: somebody may have led meanwhile
		was.end(ErrNotLeader)
		c.mu.term = nil
	}
	if !c.mu.owned || c.mu.term != nil && c.mu.term.ctx.Err() == nil {
		return
	}
	_, generation := cl.GroupMetadata()
	t := &Term{Generation: generation, c: c, cl: cl, over: make(chan struct{})}
	t.ctx, t.end = context.WithCancelCause(c.ctx)
	c.mu.term = t
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// unsure is called when the client has lost its session, for whatever reason: groupTrouble hears which. Where the brokers
// only could not be asked, the term goes on until they can.
func (c *candidate) unsure() {
	c.join(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.owned = false
	if c.mu.quiet.IsZero() {
		c.mu.quiet = time.Now()
	}
	if c.mu.term != nil {
		c.mu.term.unsure = true
	}
}

func (c *candidate) join(joined bool) {
	if c.o.Joined != nil {
		c.o.Joined.Store(joined)
	}
}

// lookForQuiet tells when there has been no session for long. A leader hears of its brokers otherwise.
func (c *candidate) lookForQuiet() {
	c.mu.Lock()
	since, told := c.mu.quiet, c.mu.told
	c.mu.Unlock()
	if !since.IsZero() && time.Since(since) >= quietAfter && told == "" {
		c.tell("no answer (are the brokers up, and is there a coordinator for the group?)")
	}
}

// expelled ends the term: the brokers have said so.
func (c *candidate) expelled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.term != nil {
		c.mu.term.end(ErrNotLeader)
		c.mu.term = nil
	}
}

// revoked ends the term where the group moves the office on, or is left, and waits until the work has ended.
func (c *candidate) revoked(m map[string][]int32) {
	if len(m[c.o.Topic]) == 0 {
		return
	}
	c.mu.Lock()
	t := c.mu.term
	c.mu.term, c.mu.owned = nil, false
	begun := t != nil && t.begun
	c.mu.Unlock()
	if t == nil {
		return
	}
	t.end(ErrNotLeader)
	if !begun || c.ctx.Err() != nil { // it has ended before the group is left
		return
	}
	select {
	case <-t.over:
	case <-time.After(handOverPatience):
	}
}

// begin returns the term that is to be worked in.
func (c *candidate) begin() *Term {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.term != nil {
		c.mu.term.begun = true
	}
	return c.mu.term
}

// previous is who left a name with the brokers last.
func (c *candidate) previous(ctx context.Context, cl *kgo.Client) string {
	ctx, cancel := context.WithTimeout(ctx, previousTimeout)
	defer cancel()
	offsets, err := kadm.NewClient(cl).FetchOffsets(ctx, c.o.Group)
	if err != nil {
		return "" // for people alone
	}
	o, _ := offsets.Lookup(c.o.Topic, leaderPartition)
	return o.Metadata
}

// tell logs the group's trouble once, and its end; empty for none.
func (c *candidate) tell(trouble string) {
	c.mu.Lock()
	told := c.mu.told
	c.mu.told = trouble
	c.mu.Unlock()
	switch {
	case trouble == told:
	case trouble == "":
		c.log.Info("the group of this source's feeders works again", "group", c.o.Group)
	default:
		c.log.Warn("the group of this source's feeders fails, and is tried again", "group", c.o.Group, "error", trouble)
	}
}

// groupTrouble hears of what ended a session of the group.
type groupTrouble struct{ c *candidate }

// OnGroupManageError implements kgo.HookGroupManageError.
func (h groupTrouble) OnGroupManageError(err error) {
	var said *kerr.Error
	if errors.As(err, &said) && !said.Retriable {
		h.c.expelled()
	}
	text := err.Error()
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		text += " (allow this user Read on the consumer group: docs/TOPICS.md)"
	}
	h.c.tell(text)
}
