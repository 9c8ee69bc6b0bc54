package owed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
	"invalidator/sink/registry"
)

const (
	every = time.Second // between two looks at the state topic
	// sayAgain is how long what is owed may stay unsaid while only its numbers change, or nothing does: so a record that a paused owner wrote late
	// does not stand for long, and who reads sees that somebody still sums up.
	sayAgain = 10 * time.Second
	// lookTimeout bounds one look: a broker that hangs must not keep the others from being told.
	lookTimeout = 30 * time.Second
	// goneFor is how long a topic must have been missing before what its partitions owe counts for nothing: nobody can pay it.
	goneFor = time.Minute
)

// Keys are the keys in etcd.
type Keys interface {
	List(ctx context.Context) (map[string]registry.OwedKey, error)
	Put(ctx context.Context, node string, value []byte, was int64) (revision int64, err error)
	Remove(ctx context.Context, node string, was int64) (bool, error)
}

// Options are a publisher's parts.
type Options struct {
	Group  string
	Worker string // this process, to people
	State  *changelog.StateStore
	Say    func(ctx context.Context, node string, record []byte) error // writes to the status topic
	Keys   Keys                                                        // nil: there is no etcd
	Nodes  func() []string                                             // that a ring record of the last cache.max_ttl names
	Log    *slog.Logger
}

// Publisher tells what the nodes of its work partitions owe.
type Publisher struct {
	opts     Options
	follower *changelog.StateFollower
	sum      *Sum
	missing  map[string]time.Time // topics that do not exist, since when
	failing  bool

	// turn is held while something is told, and while what is ours changes: who loses a node tells nothing of it any more. Taken before mu.
	turn   sync.Mutex
	said   map[string]*telling // of the nodes that are ours; guarded by turn
	strays map[string]bool     // nodes of whose key it was told that it is another fleet's; guarded by turn

	mu struct { // a leaf
		sync.Mutex
		claims uint64                 // how often something was claimed
		owned  map[int32]uint64       // work partitions that are ours, by which claim
		stop   context.CancelFunc     // of the look that runs; nil: none does
		shown  map[string]replay.Owed // nodes of ours that owe something, as metrics show them
	}
}

// telling is what was last told of a node.
type telling struct {
	meter
	claim uint64 // under which
	last  replay.Owed
	put   bool // under this claim, into etcd
}

// NewPublisher makes one that owns nothing yet.
func NewPublisher(o Options) *Publisher {
	p := &Publisher{opts: o, missing: map[string]time.Time{}, said: map[string]*telling{}, strays: map[string]bool{}}
	p.mu.owned, p.mu.shown = map[int32]uint64{}, map[string]replay.Owed{}
	return p
}

// Claim is changelog.GroupOptions.Work: when it returns nothing is told any more of the nodes of other partitions.
func (p *Publisher) Claim(owned []int32) {
	p.mu.Lock()
	if p.mu.stop != nil {
		p.mu.stop()
	}
	p.mu.Unlock()
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.claims++
	now := make(map[int32]uint64, len(owned))
	for _, n := range owned {
		now[n] = p.mu.claims
		if was, ok := p.mu.owned[n]; ok {
			now[n] = was
		}
	}
	p.mu.owned = now
	maps.DeleteFunc(p.mu.shown, func(node string, _ replay.Owed) bool { _, ours := now[changelog.WorkPartition(node)]; return !ours })
}

// Run looks and tells until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	defer p.letGo()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		stopped, err := p.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case stopped: // what is ours has changed
		case err != nil && !p.failing:
			p.failing = true
			p.opts.Log.Error("telling what nodes owe: what was told stands, and it is tried again each second", "error", err)
		case err == nil && p.failing:
			p.failing = false
			p.opts.Log.Info("what nodes owe is told again")
		}
	}
}

func (p *Publisher) letGo() {
	if p.follower != nil {
		p.follower.Close()
	}
	p.follower, p.sum = nil, nil
}

// begin notes that a look begins, and what is ours then.
func (p *Publisher) begin(ctx context.Context) (look context.Context, owned map[int32]uint64, end func()) {
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.stop = cancel
	return look, p.mu.owned, func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.stop = nil
	}
}

// look sums up and tells. It reports whether it was stopped by a claim.
func (p *Publisher) look(ctx context.Context) (stopped bool, err error) {
	began := time.Now()
	ctx, owned, end := p.begin(ctx)
	defer end()
	if len(owned) == 0 {
		p.letGo()
		return false, nil
	}
	defer func() { stopped = errors.Is(ctx.Err(), context.Canceled) }()
	// The keys come before the states. So a key that is changed later is one that nobody has touched since before the states were read: a worker that
	// was paused in between, and owns nothing any more, changes nothing.
	var keys map[string]registry.OwedKey
	var noKeys error
	if p.opts.Keys != nil {
		keys, noKeys = p.opts.Keys.List(ctx)
	}
	debts, ends, bad, err := p.read(ctx, began)
	if err != nil {
		return false, errors.Join(err, noKeys)
	}
	return false, errors.Join(bad, noKeys, p.tell(ctx, owned, debts, ends, bad != nil, keys, noKeys == nil))
}

// read brings the sum up to date. bad is of states that cannot be read: what they owe is not known.
func (p *Publisher) read(ctx context.Context, now time.Time) (debts Debts, ends map[changelog.Partition]int64, bad, err error) {
	if p.follower == nil {
		if p.follower, err = p.opts.State.FollowAll(Wanted(p.opts.Group)); err != nil {
			return nil, nil, nil, err
		}
		p.sum = NewSum(p.opts.Group)
	}
	if err := p.follower.Read(ctx, p.sum.Apply); err != nil {
		if errors.Is(err, changelog.ErrMadeAgain) {
			p.sum = NewSum(p.opts.Group)
		}
		return nil, nil, nil, err
	}
	debts, bad = p.sum.All()
	topics := map[string]bool{}
	for _, of := range debts {
		for id := range of {
			topics[id.Topic] = true
		}
	}
	ends, gone, err := p.follower.Ends(ctx, slices.Collect(maps.Keys(topics)))
	if err != nil {
		return nil, nil, bad, err
	}
	debts.without(p.stillGone(gone, now))
	return debts, ends, bad, nil
}

// stillGone are the topics that have been missing for long.
func (p *Publisher) stillGone(gone []string, now time.Time) map[string]bool {
	was := p.missing
	p.missing = map[string]time.Time{}
	long := map[string]bool{}
	for _, topic := range gone {
		since, ok := was[topic]
		if !ok {
			since = now
		}
		p.missing[topic] = since
		long[topic] = now.Sub(since) >= goneFor
	}
	return long
}

// without leaves out topics that are gone.
func (d Debts) without(topics map[string]bool) {
	for who, of := range d {
		maps.DeleteFunc(of, func(id changelog.Partition, _ pipeline.Debt) bool { return topics[id.Topic] })
		if len(of) == 0 {
			delete(d, who)
		}
	}
}

// tell says of every node that is ours, and was when the look began, what has to be said.
func (p *Publisher) tell(ctx context.Context, owned map[int32]uint64, debts Debts, ends map[changelog.Partition]int64, unsure bool,
	keys map[string]registry.OwedKey, haveKeys bool) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.mu.Lock()
	now := p.mu.owned
	p.mu.Unlock()
	claim := func(node string) (uint64, bool) {
		n := changelog.WorkPartition(node)
		c, ours := now[n]
		return c, ours && owned[n] == c
	}
	maps.DeleteFunc(p.said, func(node string, t *telling) bool { c, ours := claim(node); return !ours || c != t.claim })
	nodes := map[string]bool{}
	for _, node := range p.opts.Nodes() {
		nodes[node] = true
	}
	for who := range debts {
		if who.Kind == pipeline.KindNode {
			nodes[who.Name] = true
		}
	}
	for node := range p.said {
		nodes[node] = true
	}
	for node, k := range keys {
		if ours(k.Value, p.opts.Group) == nil {
			nodes[node] = true
		}
	}
	var failed error
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		c, ours := claim(node)
		if !ours {
			continue
		}
		var key *registry.OwedKey
		if k, ok := keys[node]; ok {
			key = &k
		}
		of := debts[Owner{pipeline.KindNode, node}]
		if len(of) == 0 && unsure {
			continue
		}
		failed = errors.Join(failed, p.tellOf(ctx, node, c, of, ends, key, haveKeys && p.opts.Keys != nil))
	}
	return failed
}

// tellOf says what one node owes. The caller has the turn.
func (p *Publisher) tellOf(ctx context.Context, node string, claim uint64, debts map[changelog.Partition]pipeline.Debt, ends map[changelog.Partition]int64,
	key *registry.OwedKey, intoKeys bool) error {
	t := p.said[node]
	if t == nil {
		t = &telling{claim: claim}
	}
	p.said[node] = t
	total, now := TotalOf(debts, ends), time.Now().UTC()
	t.see(now, debts, total.Open)
	r := replay.Owed{Node: node, Group: p.opts.Group, At: now, Worker: p.opts.Worker, Paid: total.Partitions == 0,
		Partitions: total.Partitions, Records: total.Records, Since: total.Since.UTC(), Off: total.Open}
	if !r.Paid && !r.Off {
		r.Rate = math.Round(t.rate()*10) / 10
		if r.Rate > 0 {
			r.Seconds = max(int64(math.Ceil(float64(r.Records)/r.Rate)), 1)
		}
	}
	value, err := replay.Encode(r)
	if err != nil {
		return err
	}
	p.show(r)
	news := isNews(t.last, r)
	var failed error
	if intoKeys {
		failed = p.putKey(ctx, node, r, value, key, news || !t.put)
		t.put = t.put || failed == nil
	}
	if news {
		if err := p.opts.Say(ctx, node, value); err != nil {
			return errors.Join(failed, fmt.Errorf("telling what %s owes: %w", node, err))
		}
		t.last = r
	}
	return failed
}

func (p *Publisher) show(r replay.Owed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Paid {
		delete(p.mu.shown, r.Node)
	} else {
		p.mu.shown[r.Node] = r
	}
}

// isNews says whether r is to be told, where last was. Nothing was: last is the zero Owed.
func isNews(last, r replay.Owed) bool {
	switch {
	case last.Node == "", last.Paid != r.Paid, last.Off != r.Off, last.Partitions != r.Partitions, !last.Since.Equal(r.Since):
		return true
	case r.Paid:
		return false
	case !r.Off && last.Records != r.Records:
		return true
	}
	return r.At.Sub(last.At) >= sayAgain
}

// putKey makes a node's key what r says, where it still is as it was read.
func (p *Publisher) putKey(ctx context.Context, node string, r replay.Owed, value []byte, key *registry.OwedKey, news bool) error {
	var was int64
	if key != nil {
		was = key.Revision
		if err := ours(key.Value, p.opts.Group); err != nil {
			if !p.strays[node] {
				p.strays[node] = true
				p.opts.Log.Error("the key in etcd of what a node owes is left alone", "node", node, "error", err)
			}
			return nil
		}
	}
	delete(p.strays, node)
	var err error
	switch {
	case r.Paid && key != nil:
		_, err = p.opts.Keys.Remove(ctx, node, was)
	case !r.Paid && (key == nil || news):
		_, err = p.opts.Keys.Put(ctx, node, value, was)
	}
	return err // where somebody else was quicker, the next look sees what he wrote
}

// ours tells why a key is none that we may change.
func ours(value []byte, group string) error {
	r, err := replay.DecodeStatus(value)
	if err != nil {
		return fmt.Errorf("%w (a newer version wrote it, or somebody else)", err)
	}
	o, ok := r.(replay.Owed)
	if !ok || o.Group != group {
		return fmt.Errorf("it is of the group %q (each fleet needs a cache.ring.etcd.owed_prefix of its own)", o.Group)
	}
	return nil
}
