package flush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"invalidator/internal/obs/obstest"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// item is what a node holds under a key.
type item struct {
	cas   uint64
	value string
	stale time.Duration
}

// fakeNode is a memcached as a conductor sees it. What is nil or zero does as it should.
type fakeNode struct {
	pid, start int64
	noCAS      bool
	running    bool // its crawler is at work
	cas        uint64
	items      map[string]item
	sets       float64 // a second
	since      time.Time

	down    error                         // what stats, marks and dumps answer
	unset   error                         // what marks answer
	closed  error                         // what a delete returns
	slow    time.Duration                 // how long a dump takes
	late    time.Duration                 // how long after it a delete is answered
	off     bool                          // deletes are answered with a *sink.OffError
	dump    func(show func() error) error // in place of a dump; show does what it should
	deleted func(key string)              // before a delete is carried out
	refuses map[string]bool               // keys
}

// fakeNodes are the nodes of a fleet. They see that no node is asked for two dumps at once, and that nobody is asked who may not.
type fakeNodes struct {
	t  *testing.T
	mu sync.Mutex

	by      map[string]*fakeNode
	dumping map[string]bool
	asked   []string    // nodes, as they were asked for dumps
	at      []time.Time // of deletes
}

// deletes are when they were carried out.
func (f *fakeNodes) deletes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.at)
}

// dumps are the nodes that were asked for one, in order.
func (f *fakeNodes) dumps() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fakeNodes) node(name string) *fakeNode {
	if f.by[name] == nil {
		f.by[name] = &fakeNode{pid: 100, start: 1, cas: 1, items: map[string]item{}, since: time.Now()}
	}
	return f.by[name]
}

// fill has a reader set keys on nodes.
func (f *fakeNodes) fill(nodes string, value string, keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range strings.Fields(nodes) {
		n := f.node(name)
		for _, key := range keys {
			n.cas++
			n.items[key] = item{cas: n.cas, value: value}
		}
	}
}

// holds are the keys of a node, sorted, with their values: "user:1=old".
func (f *fakeNodes) holds(name string) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(f.node(name).items)) {
		it := f.node(name).items[key]
		text := key + "=" + it.value
		if it.stale > 0 {
			text += " stale " + it.stale.String()
		}
		if key != markKey {
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return list
}

// change has do act on a node.
func (f *fakeNodes) change(name string, do func(n *fakeNode)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.node(name))
}

func (f *fakeNodes) Stats(_ context.Context, name string) (sink.NodeStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(name)
	if n.down != nil {
		return sink.NodeStats{}, n.down
	}
	sets := uint64(n.sets * time.Since(n.since).Seconds())
	return sink.NodeStats{Pid: n.pid, Start: n.start, Running: n.running, CAS: !n.noCAS, CmdSet: sets, CurrItems: uint64(len(n.items))}, nil
}

func (f *fakeNodes) Mark(_ context.Context, name, key string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(name)
	if err := cmp.Or(n.down, n.unset); err != nil {
		return 0, err
	}
	n.cas++
	n.items[key] = item{cas: n.cas}
	return n.cas, nil
}

func (f *fakeNodes) Dump(ctx context.Context, name string, each func(key []byte, cas uint64)) error {
	n, err := f.beginDump(name)
	if err != nil {
		return err
	}
	defer f.endDump(name)
	if n.slow > 0 {
		select {
		case <-time.After(n.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	show := func() error {
		f.mu.Lock()
		all := maps.Clone(n.items)
		f.mu.Unlock()
		for key, it := range all {
			if n.noCAS {
				it.cas = 0
			}
			each([]byte(key), it.cas)
		}
		return ctx.Err()
	}
	if n.dump != nil {
		return n.dump(show)
	}
	return show()
}

func (f *fakeNodes) beginDump(name string) (*fakeNode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dumping[name] {
		f.t.Errorf("node %s is dumped twice at once", name)
	}
	n := f.node(name)
	if n.down != nil {
		return nil, n.down
	}
	f.dumping[name] = true
	f.asked = append(f.asked, name)
	return n, nil
}

func (f *fakeNodes) endDump(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dumping[name] = false
}

func (f *fakeNodes) DeleteIf(ctx context.Context, c sink.Copy, cas uint64, staleFor time.Duration, w sink.Waiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	n := f.node(c.Node)
	deleted, off, closed := n.deleted, n.off, n.closed
	f.mu.Unlock()
	if closed != nil {
		return closed
	}
	if off {
		return &sink.OffError{Node: c.Node, Why: "it does not answer"}
	}
	if deleted != nil {
		deleted(c.Key)
	}
	err := f.delete(n, c, cas, staleFor)
	if n.late == 0 {
		w.Acked(c, err)
		return nil
	}
	go func() {
		time.Sleep(n.late)
		w.Acked(c, err)
	}()
	return nil
}

func (f *fakeNodes) delete(n *fakeNode, c sink.Copy, cas uint64, staleFor time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = append(f.at, time.Now())
	it, there := n.items[c.Key]
	switch {
	case n.off:
		return &sink.OffError{Node: c.Node, Why: "it went off"}
	case n.refuses[c.Key]:
		return &sink.RefusedError{Copy: c, Answer: "CLIENT_ERROR"}
	case !there:
	case cas != 0 && it.cas != cas:
		return &sink.ChangedError{Copy: c}
	case staleFor > 0:
		n.cas++
		n.items[c.Key] = item{n.cas, it.value, staleFor}
	default:
		delete(n.items, c.Key)
	}
	return nil
}

// fakeTopics are the control and the status topic.
type fakeTopics struct {
	mu      sync.Mutex
	control []onTopic
	status  []onTopic
	changed chan struct{}
	write   func(replay.Record) error // before a record is written; nil: all goes well
	past    func() error              // before what was said is read
	opened  int
}

type onTopic struct {
	at time.Time
	replay.Record
}

func (f *fakeTopics) append(list *[]onTopic, r replay.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*list = append(*list, onTopic{time.Now(), r})
	if list == &f.control {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// makeAgain has the control topic removed and made again.
func (f *fakeTopics) makeAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.control = nil
	close(f.changed)
	f.changed = make(chan struct{})
}

// terms is how often it was opened.
func (f *fakeTopics) terms() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

func (f *fakeTopics) open(context.Context) (Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &fakeLog{f}, nil
}

type fakeLog struct{ *fakeTopics }

func (f *fakeLog) Close() {}

func (f *fakeLog) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeLog) Orders() (requests []Asked, jobs []Begun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	index, known := map[string]int{}, map[string]bool{}
	for i, on := range f.control {
		switch r := on.Record.(type) {
		case replay.Job:
			jobs = append(jobs, Begun{r, int64(i), on.at})
		case replay.Request:
			of, there := index[r.Of]
			switch {
			case known[r.ID]:
			case r.Action == replay.Flush:
				index[r.ID] = len(requests)
				requests = append(requests, Asked{Request: r, Offset: int64(i), Taken: on.at})
			case !there:
			case r.Action == replay.Cancel:
				requests[of].Cancelled = r.By
			default:
				requests[of].Paused = r.Action == replay.Pause
			}
			known[r.ID] = true
		}
	}
	return requests, jobs
}

func (f *fakeLog) Past(_ context.Context, since time.Time, each func(replay.Record)) error {
	f.mu.Lock()
	all, past := slices.Clone(f.status), f.past
	f.mu.Unlock()
	if past != nil {
		if err := past(); err != nil {
			return err
		}
	}
	for _, on := range all {
		if !on.at.Before(since) {
			each(on.Record)
		}
	}
	return nil
}

func (f *fakeLog) Write(ctx context.Context, r replay.Record) error {
	f.mu.Lock()
	write := f.write
	f.mu.Unlock()
	if write != nil {
		if err := write(r); err != nil {
			return err
		}
	}
	if _, err := replay.Encode(r); err != nil {
		return err
	}
	if _, is := r.(replay.Job); is {
		f.append(&f.control, r)
	} else {
		f.append(&f.status, r)
	}
	return ctx.Err()
}

// rig is a fleet in a bubble of its own time.
type rig struct {
	*testing.T
	nodes  *fakeNodes
	topics *fakeTopics
	o      Options
	view   *registry.View
	viewMu sync.Mutex
	begun  time.Time
	asked  atomic.Int64 // times that the owner was asked for
	lost   atomic.Bool  // and is another one

	conductor *Conductor
	stop      func()
	log       obstest.Log
}

// shard is one of a ring: "s0 a b" has primary a and replica b.
func shard(text string) sink.Shard {
	words := strings.Fields(text)
	s := sink.Shard{ID: words[0], Weight: 1, Primary: sink.Node{Addr: words[1] + ":1"}, Replicas: []sink.Replica{}}
	for _, r := range words[2:] {
		addr, seeding := strings.CutSuffix(r, "!")
		s.Replicas = append(s.Replicas, sink.Replica{Addr: addr + ":1", Seeding: seeding})
	}
	return s
}

func ringRecord(epoch int64, shards ...string) *sink.Record {
	r := &sink.Record{Epoch: epoch, At: time.Now(), Kind: sink.KindPoints160}
	for _, s := range shards {
		r.Shards = append(r.Shards, shard(s))
	}
	return r
}

// previous has clients read another ring after a miss.
func previous(r *sink.Record, epoch int64, shards ...string) *sink.Record {
	r.Previous = &sink.Previous{Epoch: epoch}
	for _, s := range shards {
		r.Previous.Shards = append(r.Previous.Shards, shard(s))
	}
	return r
}

// viewOf is of records, the one in force last.
func viewOf(t *testing.T, records ...*sink.Record) *registry.View {
	t.Helper()
	last := records[len(records)-1]
	topology, err := sink.NewTopology(last, records[:len(records)-1]...)
	if err != nil {
		t.Fatal(err)
	}
	v := &registry.View{Topology: topology}
	for _, r := range records {
		v.Sights = append(v.Sights, registry.Sight{Record: r, Seen: time.Now()})
	}
	return v
}

// inBubble runs do with a fleet of two shards on three nodes, a to c.
func inBubble(t *testing.T, do func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, begun: time.Now()}
		r.nodes = &fakeNodes{t: t, by: map[string]*fakeNode{}, dumping: map[string]bool{}}
		r.topics = &fakeTopics{changed: make(chan struct{})}
		r.view = viewOf(t, ringRecord(1, "s0 a b", "s1 b c"))
		r.o = Options{
			Worker: "w1", Work: 7, Open: r.topics.open, Nodes: r.nodes, View: r.today, Pools: func() []string { return []string{"user", "feed"} },
			Holds: r.holding, Settle: time.Second, MaxTTL: 24 * time.Hour, Lag: time.Minute, Window: 30 * time.Second,
			Registerer: prometheus.NewRegistry(),
		}
		r.o.Log = slog.New(slog.NewTextHandler(&r.log, nil))
		defer func() {
			if r.stop != nil {
				r.stop()
			}
		}()
		do(r)
	})
}

func (r *rig) holding(context.Context) error {
	r.asked.Add(1)
	if r.lost.Load() {
		return errors.New("another member owns it")
	}
	return nil
}

func (r *rig) today() *registry.View {
	r.viewMu.Lock()
	defer r.viewMu.Unlock()
	return r.view
}

func (r *rig) see(v *registry.View) {
	r.viewMu.Lock()
	defer r.viewMu.Unlock()
	r.view = v
}

// start has a conductor own its work, until kill or the end.
func (r *rig) start() {
	r.Helper()
	r.o.Registerer = prometheus.NewRegistry()
	c, err := New(r.o)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	c.Claim([]int32{3, 7})
	r.conductor, r.stop = c, func() { cancel(); <-done; r.stop = nil }
}

// ask writes a request, whose other fields do sets.
func (r *rig) ask(id string, t replay.Target, do ...func(q *replay.Request)) {
	q := replay.Request{ID: id, At: time.Now(), By: "ann@ops", Action: replay.Flush, Target: t}
	for _, f := range do {
		f(&q)
	}
	if _, err := replay.Encode(q); err != nil {
		r.Fatal(err)
	}
	r.topics.append(&r.topics.control, q)
}

// say writes another action about a request.
func (r *rig) say(action replay.Action, of string) {
	r.topics.append(&r.topics.control, replay.Request{ID: fmt.Sprint(action, of, time.Now().UnixNano()), By: "bob@ops", Action: action, Of: of})
}

func promoted(epoch int64) func(*replay.Request) {
	return func(q *replay.Request) { q.Cause = &replay.Cause{What: replay.Promotion, Epoch: epoch} }
}

// after waits for a moment of the story.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// await waits until a request has its result, for an hour at most.
func (r *rig) await(id string) replay.Result {
	r.Helper()
	for range 3600 {
		if res, ok := r.result(id); ok {
			return res
		}
		r.after(time.Second)
	}
	all := r.statuses()
	r.Fatalf("%s has no result after an hour; the status topic ends with %+v", id, all[max(len(all)-3, 0):])
	return replay.Result{}
}

// done is await of a result that is clean.
func (r *rig) done(id string) replay.Result {
	r.Helper()
	res := r.await(id)
	if res.Error != "" || !res.Clean {
		r.Fatalf("%s: %+v", id, res)
	}
	return res
}

func (r *rig) result(id string) (replay.Result, bool) {
	for _, s := range r.statuses() {
		if res, is := s.(replay.Result); is && res.ID == id {
			return res, true
		}
	}
	return replay.Result{}, false
}

func (r *rig) statuses() (all []replay.Record) {
	r.topics.mu.Lock()
	defer r.topics.mu.Unlock()
	for _, on := range r.topics.status {
		all = append(all, on.Record)
	}
	return all
}

// jobs are those on the control topic.
func (r *rig) jobs() (all []replay.Job) {
	r.topics.mu.Lock()
	defer r.topics.mu.Unlock()
	for _, on := range r.topics.control {
		if j, is := on.Record.(replay.Job); is {
			all = append(all, j)
		}
	}
	return all
}

// waits are the reasons that were told on the status topic.
func (r *rig) waits() (all []string) {
	for _, s := range r.statuses() {
		if p, is := s.(replay.Progress); is && p.Waits != "" {
			all = append(all, p.Node+": "+p.Waits)
		}
	}
	return all
}

// expect compares what nodes hold: {"a": "user:1=new"}; "" for nothing.
func (r *rig) expect(want map[string]string) {
	r.Helper()
	for node, keys := range want {
		if got := strings.Join(r.nodes.holds(node+":1"), " "); got != keys {
			r.Errorf("after %s node %s holds %q, want %q", time.Since(r.begun), node, got, keys)
		}
	}
}

func (r *rig) metric(name string, labels ...string) float64 {
	r.Helper()
	families, err := r.o.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "invalidator_flush_"+name && (len(labels) == 0 || m.Label[0].GetValue() == labels[0]) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.Fatalf("there is no metric %s %v", name, labels)
	return 0
}

var errBroker = errors.New("the broker is away")
