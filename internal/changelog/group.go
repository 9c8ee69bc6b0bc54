package changelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partition names one partition of a change topic.
type Partition struct {
	Topic  string
	Number int32
}

func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// Record is one record of a change topic. Key and Value are nil for null, and may be kept.
type Record struct {
	Offset     int64
	Time       time.Time // when the broker appended it
	Key, Value []byte
}

// Loss is a range of a partition that the log no longer holds, or whose place in it is not known: From is -1 then.
type Loss struct {
	Partition
	From, To int64 // [From, To)
	Why      string
}

// Progress is what may be committed of a partition, and the state record that the commit points to.
type Progress struct {
	Partition
	Offset int64
	State  []byte // DESIGN: a partition's state; JSON
}

// Consumer is the fleet member's own work. Group makes the calls from one goroutine at a time, except Progress.
type Consumer interface {
	// Assign starts a partition whose next record is start.
	Assign(p Partition, start int64)
	// Records hands over records in order. It must not block: who has enough calls Group.Pause.
	Records(p Partition, rs []Record)
	// Lost reports a range that was not handed over and never will be. The partition goes on behind it.
	Lost(l Loss)
	// Revoke stops issuing for these partitions and returns when it has. With commit, what Finished says of them
	// afterwards is committed; without, somebody else owns them already.
	Revoke(ps []Partition, commit bool)
	// Finished returns how far every given partition is finished; called from any goroutine, never for a revoked one.
	Finished(ps []Partition) []Progress
	// Drain finishes what was begun, without taking more, until ctx ends.
	Drain(ctx context.Context)
}

// Start says where a source's topics begin that stood before the first worker.
type Start struct {
	Pattern *regexp.Regexp // of whole topic names
	At      string         // earliest, latest or an RFC 3339 time
}

// GroupOptions are what a fleet member needs to know.
type GroupOptions struct {
	Options
	Group  string
	Starts []Start
	State  *StateStore
	Names  Names
}

const (
	sessionTimeout    = 6 * time.Second // the least a broker allows by default; a killed member's partitions move after it
	heartbeat         = time.Second
	metadataAge       = 5 * time.Second // a new topic or partition is seen within two of these
	commitEvery       = time.Second
	commitTimeout     = 4 * time.Second // less than a session, so that a revoke never waits out its own
	drainTimeout      = 6 * time.Second // with the commit and the leave after it: 10 s from SIGTERM to exit
	fetchMaxPartition = 1 << 20         // bytes a fetch takes of one partition
	fetchMax          = 16 << 20        // bytes a fetch takes in all
)

// Group is this process's membership of the workers' consumer group.
type Group struct {
	opts GroupOptions
	log  *slog.Logger
	c    Consumer

	ready chan struct{} // closed when cl and adm are set: the client calls back before its constructor has returned
	cl    *kgo.Client
	adm   *kadm.Client

	// mu orders commits and revokes: a commit in flight while its partition moved would put an older offset over the
	// new owner's.
	mu    sync.Mutex
	owned map[Partition]*ownership
}

type ownership struct {
	next      int64 // offset expected next
	committed int64
}

// NewGroup checks nothing at the broker yet.
func NewGroup(opts GroupOptions) *Group {
	return &Group{opts: opts, log: opts.Log, owned: map[Partition]*ownership{}, ready: make(chan struct{})}
}

// Run joins the group and hands its partitions to c until ctx ends; then it drains, commits and leaves.
func (g *Group) Run(ctx context.Context, c Consumer) error {
	g.c = c
	if err := g.firstStart(ctx); err != nil {
		return fmt.Errorf("setting where the group %s starts: %w", g.opts.Group, err)
	}
	patterns := make([]string, len(g.opts.Starts))
	for i, s := range g.opts.Starts {
		patterns[i] = wholeName(s.Pattern)
	}
	cl, err := g.opts.Client(
		kgo.ConsumerGroup(g.opts.Group),
		kgo.ConsumeRegex(), kgo.ConsumeTopics(patterns...),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeat),
		kgo.MetadataMaxAge(metadataAge), kgo.MetadataMinAge(500*time.Millisecond),
		kgo.FetchMaxPartitionBytes(fetchMaxPartition), kgo.FetchMaxBytes(fetchMax), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AdjustFetchOffsetsFn(g.adjust),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) { g.revoke(ctx, m, true) }),
		kgo.OnPartitionsLost(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) { g.revoke(ctx, m, false) }),
	)
	if err != nil {
		return fmt.Errorf("joining the group %s: %w", g.opts.Group, err)
	}
	g.cl, g.adm = cl, kadm.NewClient(cl)
	close(g.ready)

	var wg sync.WaitGroup
	wg.Go(func() { g.commitLoop(ctx) })
	g.pollLoop(ctx)
	wg.Wait()

	// ctx has ended: what was begun is finished under a limit of its own.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	g.c.Drain(limit)
	cancel()
	cl.CloseAllowingRebalance() // leaves the group, which revokes, which commits
	return nil
}

func (g *Group) pollLoop(ctx context.Context) {
	for ctx.Err() == nil {
		fs := g.cl.PollFetches(ctx)
		if fs.IsClientClosed() {
			return
		}
		fs.EachError(func(topic string, p int32, err error) {
			if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				g.log.Warn("fetching", "topic", topic, "partition", p, "error", err)
			}
		})
		fs.EachPartition(func(ftp kgo.FetchTopicPartition) {
			if len(ftp.Records) > 0 {
				g.deliver(ctx, Partition{ftp.Topic, ftp.Partition}, ftp.Records)
			}
		})
		g.cl.AllowRebalance()
	}
}

// deliver hands over one partition's records and names a range that was skipped: a consumer library resumes silently at the
// log's start when retention has overtaken it.
func (g *Group) deliver(ctx context.Context, p Partition, rs []*kgo.Record) {
	g.mu.Lock()
	o := g.owned[p]
	var expected int64
	if o != nil {
		expected, o.next = o.next, rs[len(rs)-1].Offset+1
	}
	g.mu.Unlock()
	if o == nil {
		return // revoked between fetch and here
	}
	if first := rs[0].Offset; first > expected {
		// A jump alone is no loss: transactions of the writer leave control records that are not handed over.
		starts, err := g.adm.ListStartOffsets(ctx, p.Topic)
		if s, ok := starts.Lookup(p.Topic, p.Number); err != nil || !ok || s.Err != nil || s.Offset > expected {
			g.c.Lost(Loss{p, expected, first, "the log's start has moved past what was read"})
		}
	} else if first < expected {
		g.c.Lost(Loss{p, -1, first, fmt.Sprintf("the log went back from offset %d: the topic was made again, or lost its end", expected)})
	}
	out := make([]Record, len(rs))
	for i, r := range rs {
		out[i] = Record{Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}
	}
	g.c.Records(p, out)
}

// Pause stops fetching a partition; Resume goes on.
func (g *Group) Pause(p Partition) {
	g.cl.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Number}})
}
func (g *Group) Resume(p Partition) {
	g.cl.ResumeFetchPartitions(map[string][]int32{p.Topic: {p.Number}})
}

// adjust is called with every newly assigned partition and its committed offset (none: a relative start). It decides where
// each starts, names what is missing, and tells the consumer.
func (g *Group) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-g.ready
	topics := make([]string, 0, len(offsets))
	for t := range offsets {
		topics = append(topics, t)
	}
	starts, err := g.adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("asking where the log starts: %w", err)
	}
	ends, err := g.adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("asking where the log ends: %w", err)
	}
	for t, ps := range offsets {
		for n, off := range ps {
			p := Partition{t, n}
			s, ok1 := starts.Lookup(t, n)
			e, ok2 := ends.Lookup(t, n)
			if !ok1 || !ok2 || s.Err != nil || e.Err != nil {
				return nil, fmt.Errorf("asking for the log of %s: %w", p, errors.Join(s.Err, e.Err))
			}
			at, loss, err := g.startOf(ctx, p, off.EpochOffset().Offset, s.Offset, e.Offset)
			if err != nil {
				return nil, err
			}
			if loss != nil {
				g.c.Lost(*loss)
			}
			g.mu.Lock()
			g.owned[p] = &ownership{next: at, committed: -1}
			g.mu.Unlock()
			ps[n] = kgo.NewOffset().At(at)
			g.c.Assign(p, at)
		}
	}
	return offsets, nil
}

// startOf is where a partition starts, and what is lost before it. Never the end: a group that comes back too late goes on at
// the earliest record that is left.
func (g *Group) startOf(ctx context.Context, p Partition, committed, start, end int64) (int64, *Loss, error) {
	switch {
	case committed >= 0 && committed < start:
		return start, &Loss{p, committed, start, "the group was away for longer than the topic keeps records"}, nil
	case committed > end:
		return start, &Loss{p, -1, start, fmt.Sprintf("the group had committed offset %d, and the log ends at %d: the topic was made again, or lost its end", committed, end)}, nil
	case committed >= 0:
		return committed, nil, nil
	}
	key := seenKey(g.opts.Group, p)
	_, seen, err := g.opts.State.Get(ctx, key)
	if err != nil {
		return 0, nil, fmt.Errorf("asking whether %s was seen before: %w", p, err)
	}
	if seen {
		return start, &Loss{p, -1, start, "a partition that was seen before has no committed offset"}, nil
	}
	if err := g.opts.State.Put(ctx, key, seenRecord(start)); err != nil {
		return 0, nil, fmt.Errorf("noting that %s was seen: %w", p, err)
	}
	return start, nil, nil // appeared while the fleet ran: from its beginning
}

func (g *Group) revoke(ctx context.Context, m map[string][]int32, commit bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ps []Partition
	for t, ns := range m {
		for _, n := range ns {
			if p := (Partition{t, n}); g.owned[p] != nil {
				ps = append(ps, p)
			}
		}
	}
	if len(ps) == 0 {
		return
	}
	g.c.Revoke(ps, commit)
	if commit {
		if err := g.commitLocked(ctx, g.c.Finished(ps)); err != nil {
			g.log.Warn("committing before a partition moves; its new owner repeats a little", "error", err)
		}
	}
	for _, p := range ps {
		delete(g.owned, p)
	}
}

func (g *Group) commitLoop(ctx context.Context) {
	t := time.NewTicker(commitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := g.commit(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("committing offsets; tried again in a second", "error", err)
		}
	}
}

func (g *Group) commit(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	ps := make([]Partition, 0, len(g.owned))
	for p := range g.owned {
		ps = append(ps, p)
	}
	return g.commitLocked(ctx, g.c.Finished(ps))
}

// commitLocked writes the state records, then the offsets that point to them. The order is the proof: an offset never
// stands for a state that is not yet durable; and g.mu, held by the caller, keeps the partition ours meanwhile, as far as
// this process knows. What it does not know (it was stopped for a while) the broker does: it refuses the old generation.
func (g *Group) commitLocked(ctx context.Context, all []Progress) error {
	var due []Progress
	for _, pr := range all {
		if o := g.owned[pr.Partition]; o != nil && pr.Offset > o.committed {
			due = append(due, pr)
		}
	}
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	_, generation := g.cl.GroupMetadata()
	places, err := g.putStates(ctx, due, generation)
	if err != nil {
		return err
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, pr := range due {
		if offsets[pr.Topic] == nil {
			offsets[pr.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[pr.Topic][pr.Number] = kgo.EpochOffset{Epoch: -1, Offset: pr.Offset}
	}
	withPlaces := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				place := places[Partition{t.Topic, t.Partitions[j].Partition}]
				t.Partitions[j].Metadata = &place
			}
		}
		return nil
	})
	var failed error
	g.cl.CommitOffsetsSync(withPlaces, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = commitError(resp, err)
	})
	if failed != nil {
		return failed
	}
	for _, pr := range due {
		g.owned[pr.Partition].committed = pr.Offset
	}
	return nil
}

func wholeName(re *regexp.Regexp) string { return "^(?:" + re.String() + ")$" }
