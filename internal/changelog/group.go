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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc/envelope"
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
	Headers    []envelope.Header // nil for none
}

// Loss is a range of a partition that the log no longer holds, or whose place in it is not known: From is -1 then.
type Loss struct {
	Partition
	From, To int64 // [From, To)
	Why      string
}

// Progress is how far a partition is finished.
type Progress struct {
	Partition
	Offset  int64  // everything below is finished, or owed as the state says
	Version uint64 // another one whenever what Keep gives is; from one owner's life to its next it may begin again
	// Keep gives what is to be written before Offset is committed. It is called at once, by the same goroutine, and only where there is
	// something to commit. What it gives may be later than Offset: it is good for every offset since.
	Keep func() Kept
}

// Kept is what the next owner of a partition gets. The journal is written, and acknowledged, before the state, and the state before
// the commit that points to it. Records to drop are removed last. What of the journal could not be written or removed is kept, and
// done with the next commit: nothing need be given twice.
type Kept struct {
	State   []byte // JSON, never empty
	Journal []JournalRecord
	Drop    []string // names of journal records, whoever wrote them; of one that Journal has too, only what others wrote
}

// JournalRecord is one of several beside a state, so that what does not change is not written each time. One name is written again with more.
type JournalRecord struct {
	Name  string // of the partition's records, by one owner; "2026-11-30T10"
	Value []byte // JSON
}

// Restored is what earlier owners of a partition left of this log: nothing of a topic that was removed and made again.
type Restored struct {
	State   []byte          // what the commit points to, or what the same owner wrote later; nil: nothing was committed
	Journal []JournalRecord // every owner's, also of those that the broker no longer heard; a name may come several times
}

// Consumer is the fleet member's own work. Of one partition, Assign, Records and Revoke never come at once, nor do Lost, Revoke and Finished
// of any; Assign of one may come beside Records of another.
type Consumer interface {
	// Assign starts a partition whose next record is start; one that was assigned before is given up and started anew.
	Assign(p Partition, start int64, was Restored)
	// Records hands over records in order. It must not block: who has enough calls Group.Pause.
	Records(p Partition, rs []Record)
	// Lost makes durable that a range was not handed over and never will be. The partition goes on behind it, but nothing of it is
	// committed before Lost has returned nil: after an error it is called again.
	Lost(ctx context.Context, l Loss) error
	// Revoke stops issuing for these partitions, forgets them, and returns how far each was finished.
	Revoke(ps []Partition) []Progress
	// Finished returns how far every given partition is finished; never called for a revoked one.
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

	// InstanceID makes the member a static one: a restart within a session (6 s) gets its partitions back, and nothing moves. It does not
	// leave when it stops, so that others take over after a session, as after a crash. No other process may have it. Empty: none.
	InstanceID string

	// Work is told the partitions of Names.Work that are ours, in order, whenever they change: each is a claim on the work of the names that
	// WorkPartition gives it, which nobody else does. It returns when nothing is done any more for those that are gone. It may block for a second; no
	// two calls come at once. Nothing is read of that topic, or committed. nil: no work is claimed.
	Work func(owned []int32)

	// Room waits for a moment while the consumer has enough records. nil: it never has.
	Room func(ctx context.Context)

	// Readable tells why what earlier owners left cannot be used: its partition stands still then, and is tried again. nil: all can.
	Readable func(Restored) error
}

const (
	sessionTimeout    = 6 * time.Second // the least a broker allows by default; a killed member's partitions move after it
	heartbeat         = time.Second
	metadataAge       = 5 * time.Second // a new topic or partition is seen within two of these
	commitEvery       = time.Second
	removeTimeout     = time.Second     // of states to which no commit points any more
	commitTimeout     = 4 * time.Second // less than a session, so that a revoke never waits out its own
	lossTimeout       = 30 * time.Second
	drainTimeout      = 5 * time.Second // from the end of ctx; with what follows: 10 s from SIGTERM to exit
	leaveTimeout      = 2 * time.Second // for the last commit and the leave together; the client's own end takes up to another
	fetchMaxPartition = 256 << 10       // bytes a fetch takes of one partition
	fetchMax          = 1 << 20         // bytes a fetch takes in all, of a broker, as they lie on its disk
	startBackoffMin   = time.Second     // between two attempts at a first start
	startBackoffMax   = 15 * time.Second

	// fetchMaxWait is how long a broker waits for records. So long may partitions whose fetches go on wait for one that is under way
	// without them: of the work topic, which never holds a record, where all others had stopped.
	fetchMaxWait = 100 * time.Millisecond
)

// Group is this process's membership of the workers' consumer group.
type Group struct {
	opts GroupOptions
	log  *slog.Logger
	c    Consumer

	ready chan struct{} // closed when cl and adm are set: the client calls back before its constructor has returned
	cl    *kgo.Client
	adm   *kadm.Client

	// turn holds one token. Who takes it commits, or gives partitions up: a commit in flight while its partition moved would
	// put an older offset over the new owner's.
	turn chan struct{}

	// restoring holds one token, of who begins partitions. It is taken before turn.
	restoring chan struct{}

	// places is what the commits' metadata said at the latest fetch of offsets, which alone touches it, between two callbacks.
	places map[Partition]place

	mu struct { // a leaf
		sync.Mutex
		owned   map[Partition]*ownership
		waiting map[Partition]*waiting // given to us, and none of owned
		work    map[int32]bool         // partitions of Names.Work that are ours
		joined  bool                   // the group has given us our share, and the session has not been lost since
	}
}

// ownership is what is known of a partition while it is ours.
type ownership struct {
	*papers
	next       int64  // offset expected next
	committed  int64  // in this log, by whomever; or nothingCommitted
	commitAt   int32  // epoch of the record below committed; -1: not known
	mine       bool   // we have committed, at version and under generation
	version    uint64 // Progress.Version
	generation int32
	topicID    string // empty: not known
	losses     []Loss // not durable yet, which they become before the next commit
	epochs     []epochStart
}

const nothingCommitted = -1

// epochStart is the first record that was read of a leader's epoch.
type epochStart struct {
	offset int64
	epoch  int32
}

// read notes the epochs of records, which change when the partition's leader does.
func (o *ownership) read(rs []*kgo.Record) {
	for _, r := range rs {
		if n := len(o.epochs); n == 0 || o.epochs[n-1].epoch != r.LeaderEpoch {
			o.epochs = append(o.epochs, epochStart{r.Offset, r.LeaderEpoch})
		}
	}
}

// epochBelow is the epoch of the last record below offset, for the commit: the next owner's client asks the leader whether it has
// that record, and so learns of one that was lost. -1: not known. It forgets what lies before.
func (o *ownership) epochBelow(offset int64) int32 {
	for len(o.epochs) > 1 && o.epochs[1].offset < offset {
		o.epochs = o.epochs[1:]
	}
	if len(o.epochs) == 0 || o.epochs[0].offset >= offset {
		return -1
	}
	return o.epochs[0].epoch
}

// NewGroup checks nothing at the broker yet.
func NewGroup(opts GroupOptions) *Group {
	g := &Group{opts: opts, log: opts.Log, ready: make(chan struct{}), turn: make(chan struct{}, 1), restoring: make(chan struct{}, 1)}
	g.mu.owned, g.mu.waiting, g.mu.work = map[Partition]*ownership{}, map[Partition]*waiting{}, map[int32]bool{}
	return g
}

// Run joins the group and hands its partitions to c until ctx ends; then it drains, commits and leaves. Its error is a
// configuration that cannot work.
func (g *Group) Run(ctx context.Context, c Consumer) error {
	g.c = c
	if !g.awaitFirstStart(ctx) {
		return nil
	}
	// What is still committed after ctx has ended is so until leaving ends too.
	leaving, left := context.WithCancel(context.WithoutCancel(ctx))
	defer left()
	// The drain's time runs from ctx's end: a rebalance just then may hold the last poll up.
	draining, drained := context.WithCancel(leaving)
	defer drained()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTimeout, drained) })()
	cl, err := g.opts.Client(g.clientOptions(ctx, leaving)...)
	if err != nil {
		return fmt.Errorf("joining the group %s: %w", g.opts.Group, err)
	}
	g.cl, g.adm = cl, kadm.NewClient(cl)
	cl.PauseFetchTopics(g.opts.Names.Work)
	close(g.ready)

	var wg sync.WaitGroup
	wg.Go(func() { g.eachSecond(ctx, "committing offsets", g.commit) })
	wg.Go(func() { g.eachSecond(ctx, "recording losses", g.recordAll) })
	wg.Go(func() { g.restoreLoop(ctx) })
	g.pollLoop(ctx)
	wg.Wait()

	g.c.Drain(draining)
	limit, cancel := context.WithTimeout(leaving, leaveTimeout)
	defer cancel()
	defer context.AfterFunc(limit, left)()
	if err := cl.LeaveGroupContext(limit); err != nil { // revokes, which commits
		g.log.Warn("leaving the group; the brokers notice by themselves, and the next owner repeats a little", "error", err)
	}
	cl.Close()
	cl.AllowRebalance() // a leave that the client's own, in Close, has overtaken may wait for that yet
	return nil
}

// clientOptions are of a client that takes records until ctx ends, and lives until leaving does.
func (g *Group) clientOptions(ctx, leaving context.Context) []kgo.Opt {
	patterns := make([]string, len(g.opts.Starts))
	for i, s := range g.opts.Starts {
		patterns[i] = WholeName(s.Pattern).String()
	}
	if g.opts.Work != nil {
		patterns = append(patterns, "^"+regexp.QuoteMeta(g.opts.Names.Work)+"$")
	}
	opts := []kgo.Opt{
		kgo.WithContext(leaving), // a join that waits for the other members, or for a broker, holds up the client's end otherwise
		kgo.ConsumerGroup(g.opts.Group),
		kgo.ConsumeRegex(), kgo.ConsumeTopics(patterns...),
		kgo.Balancers(newEvenBalancer(g.opts.Names.Work)),
		kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(heartbeat),
		kgo.MetadataMaxAge(metadataAge), kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.FetchMaxPartitionBytes(fetchMaxPartition), kgo.FetchMaxBytes(fetchMax), kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.WithDecompressor(unpacker{ctx}), // a rebalance, and so the leave, waits until what was fetched is unpacked
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnOffsetsFetched(g.fetched), kgo.AdjustFetchOffsetsFn(g.adjust),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { g.join(true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { g.revoke(leaving, m, true) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			g.join(false)
			g.revoke(leaving, m, false)
		}),
	}
	if g.opts.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(g.opts.InstanceID))
	}
	return opts
}

func (g *Group) pollLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if g.opts.Room != nil {
			g.opts.Room(ctx)
		}
		fs := g.cl.PollFetches(ctx)
		if fs.IsClientClosed() {
			return
		}
		var again []string
		fs.EachError(func(topic string, p int32, err error) {
			if ctx.Err() != nil || errors.Is(err, context.Canceled) {
				return
			}
			if errors.Is(err, kerr.FencedInstanceID) {
				err = fmt.Errorf("%w (another process has this kafka.instance_id: each needs one of its own)", err)
			}
			g.log.Warn("fetching", "topic", topic, "partition", p, "error", err)
			// A topic that was made again, and a partition whose commit could not be fetched: the client reads neither until it meets
			// the topic anew.
			if topic != "" && (errors.Is(err, kerr.UnknownTopicID) || !g.isOurs(Partition{topic, p})) {
				again = append(again, topic)
			}
		})
		fs.EachPartition(func(ftp kgo.FetchTopicPartition) {
			if len(ftp.Records) > 0 {
				g.deliver(ctx, Partition{ftp.Topic, ftp.Partition}, ftp.Records)
			}
		})
		g.cl.AllowRebalance()
		g.meetAgain(again)
	}
}

// deliver hands over one partition's records and names a range that was skipped: a consumer library resumes silently at the
// log's start when retention has overtaken it.
func (g *Group) deliver(ctx context.Context, p Partition, rs []*kgo.Record) {
	first := rs[0].Offset
	expected, ok := g.expect(p, rs)
	if !ok {
		return // given up between fetch and here
	}
	if first > expected {
		// A jump alone is no loss: transactions of the writer leave control records that are not handed over.
		starts, err := g.adm.ListStartOffsets(ctx, p.Topic)
		if s, ok := starts.Lookup(p.Topic, p.Number); err != nil || !ok || s.Err != nil || s.Offset > expected {
			g.lose(Loss{p, expected, first, "the log's start has moved past what was read"})
		}
	} else if first < expected {
		g.beginAnew(Loss{p, -1, first, fmt.Sprintf("the log went back from offset %d: the topic was made again, or lost its end", expected)})
		return
	}
	out := make([]Record, len(rs))
	for i, r := range rs {
		out[i] = Record{Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, envelope.Header(h))
		}
	}
	g.c.Records(p, out)
}

// expect returns the offset that was expected of a partition that is ours, and expects what follows rs from now on.
func (g *Group) expect(p Partition, rs []*kgo.Record) (was int64, ours bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.mu.owned[p]
	if o == nil {
		return 0, false
	}
	was, o.next = o.next, rs[len(rs)-1].Offset+1
	o.read(rs)
	return was, true
}

// lose keeps a loss until the next commit makes it durable.
func (g *Group) lose(l Loss) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.mu.owned[l.Partition]; o != nil {
		o.losses = append(o.losses, l)
	}
}

// Pause stops fetching a partition; Resume goes on.
func (g *Group) Pause(p Partition) {
	g.cl.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Number}})
}
func (g *Group) Resume(p Partition) {
	g.cl.ResumeFetchPartitions(map[string][]int32{p.Topic: {p.Number}})
}

// WholeName makes a pattern match a topic's whole name, and nothing less.
func WholeName(re *regexp.Regexp) *regexp.Regexp {
	return regexp.MustCompile("^(?:" + re.String() + ")$") // compiled before, it compiles
}
