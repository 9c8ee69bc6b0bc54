package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink/registry"
)

// topicTail reads a topic of one partition, and then, each time that it is asked, what came since. It is for one goroutine.
type topicTail struct {
	log  *changelog.Log
	adm  *kadm.Client
	p    changelog.Partition
	next int64
}

// read hands over what came since the last time. What has left the log since then is passed over.
func (t *topicTail) read(ctx context.Context, each func([]changelog.Record) error) error {
	ends, err := t.adm.ListEndOffsets(ctx, t.p.Topic)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return topicMissing(t.p.Topic, err)
	}
	end, _ := ends.Lookup(t.p.Topic, t.p.Number)
	return t.readTo(ctx, end.Offset, each)
}

func (t *topicTail) readTo(ctx context.Context, end int64, each func([]changelog.Record) error) error {
	for t.next < end {
		err := t.log.Read(ctx, t.p, t.next, end, each)
		var behind *changelog.LogStartError
		switch {
		case errors.As(err, &behind) && behind.Start > t.next:
			t.next = behind.Start
		case err != nil:
			return err
		default:
			t.next = end
		}
	}
	return nil
}

// goTo has it go on with what was appended since a time.
func (t *topicTail) goTo(ctx context.Context, since time.Time) error {
	at, err := t.adm.ListOffsetsAfterMilli(ctx, max(0, since.UnixMilli()), t.p.Topic)
	if err = cmp.Or(err, at.Error()); err != nil {
		return topicMissing(t.p.Topic, err)
	}
	first, _ := at.Lookup(t.p.Topic, t.p.Number)
	t.next = max(first.Offset, 0)
	return nil
}

func topicMissing(topic string, err error) error {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("topic %s does not exist (run makes it when it starts; is kafka.topic_prefix right?): %w", topic, err)
	}
	return fmt.Errorf("asking how far topic %s goes: %w", topic, err)
}

// worksReader keeps what the control and status topics say of replays and flushes. It is for one goroutine.
type worksReader struct {
	log             *changelog.Log
	control, status topicTail
	works           *works
}

// flushNodes says how many nodes a flush goes to, under the ring record in force when its job began, and later ones; 0 where that is not known.
func flushNodes(view *registry.View) func(*replay.Job) int {
	return func(j *replay.Job) int {
		switch t := j.Scope; {
		case t.Node != "":
			return 1
		case t.Shard != "":
			return len(nodesSince(view, t.Shard, j.Epoch))
		case t.Pool != "":
			return len(view.Topology.Nodes())
		}
		return 0 // which nodes gained keys is not known here
	}
}

// nodesSince are a shard's nodes under the records from an epoch on.
func nodesSince(view *registry.View, shard string, epoch int64) map[string]bool {
	nodes := map[string]bool{}
	records, _ := view.Between(epoch, view.Topology.Epoch())
	for _, r := range records {
		shards := r.Shards
		if r.Previous != nil {
			shards = slices.Concat(shards, r.Previous.Shards)
		}
		for _, s := range shards {
			if s.ID == shard {
				for _, node := range nodesOf(&s) {
					nodes[node] = true
				}
			}
		}
	}
	return nodes
}

// readWorks begins with all of the control topic, and with what of the status topic was appended since a time; zero: all. Of what was asked for before that it knows how it ended.
func readWorks(ctx context.Context, o changelog.Options, cl *kgo.Client, names changelog.Names, since time.Time) (*worksReader, error) {
	log, err := changelog.OpenLog(o)
	if err != nil {
		return nil, err
	}
	adm := kadm.NewClient(cl)
	r := &worksReader{log: log, works: newWorks()}
	r.control = topicTail{log: log, adm: adm, p: changelog.Partition{Topic: names.Control}}
	r.status = topicTail{log: log, adm: adm, p: changelog.Partition{Topic: names.Status}}
	if since.IsZero() {
		return r, r.closeOn(r.read(ctx))
	}
	err = r.status.goTo(ctx, since)
	first := r.status.next
	if err == nil {
		err = r.read(ctx)
	}
	if err == nil {
		err = r.readEndings(ctx, since, first)
	}
	return r, r.closeOn(err)
}

// readEndings reads, up to an offset, the results of what was asked for before a time and has none behind that offset.
func (r *worksReader) readEndings(ctx context.Context, since time.Time, end int64) error {
	oldest := since
	for _, w := range r.works.order {
		if w.request != nil && w.result == nil && w.taken.Before(oldest) {
			oldest = w.taken
		}
	}
	if !oldest.Before(since) {
		return nil
	}
	early := r.status
	if err := early.goTo(ctx, oldest.Add(-beforeAsked)); err != nil {
		return err
	}
	return early.readTo(ctx, end, r.works.endings)
}

func (r *worksReader) closeOn(err error) error {
	if err != nil {
		r.log.Close()
	}
	return err
}

func (r *worksReader) close() { r.log.Close() }

// read takes in what came since. The status topic comes first: what it tells of was asked for before, so that what is asked of the control topic
// later is there.
func (r *worksReader) read(ctx context.Context) error {
	if err := r.status.read(ctx, r.works.status); err != nil {
		return err
	}
	return r.control.read(ctx, r.works.control)
}

// requests reads the control topic alone.
func (d *Desk) requests(ctx context.Context) (*works, error) {
	log, err := changelog.OpenLog(d.kafka)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	b := newWorks()
	t := topicTail{log: log, adm: d.adm, p: changelog.Partition{Topic: d.names.Control}}
	return b, t.read(ctx, b.control)
}

// Works are the replays, the flushes and what changes of the ring make done again, of which anything was heard since a time, by when that was first. unread is
// how many records on the topics this version cannot read.
func (d *Desk) Works(ctx context.Context, since, now time.Time) (all []Work, unread int, err error) {
	r, err := readWorks(ctx, d.kafka, d.cl, d.names, since)
	if err != nil {
		return nil, 0, err
	}
	defer r.close()
	if err := d.knowNodes(ctx, r.works); err != nil {
		return nil, 0, err
	}
	for _, w := range r.works.list(now) {
		if !maxTime(maxTime(w.At, w.Last), w.Ended).Before(since) || !w.State.Ended() {
			all = append(all, w)
		}
	}
	return all, r.works.unread, nil
}

// beforeAsked is how much earlier than its request something of it may stand on the status topic, as clocks differ.
const beforeAsked = time.Minute

// Find is what is known of one, with its parts. The error is a *RefusedRequest, with the nearest id, where there is none.
func (d *Desk) Find(ctx context.Context, id string, now time.Time) (Work, error) {
	r, err := d.follow(ctx, id)
	if err != nil {
		return Work{}, err
	}
	defer r.close()
	return r.works.find(id, now)
}

// follow reads what concerns an id.
func (d *Desk) follow(ctx context.Context, id string) (*worksReader, error) {
	book, err := d.requests(ctx)
	if err != nil {
		return nil, err
	}
	var since time.Time
	if w := book.byID[id]; w != nil && w.request != nil {
		since = w.taken.Add(-beforeAsked)
		if w.job != nil { // it may have begun for an earlier request
			for _, other := range w.job.Answers {
				if o := book.byID[other]; o != nil && o.request != nil && o.taken.Add(-beforeAsked).Before(since) {
					since = o.taken.Add(-beforeAsked)
				}
			}
		}
	}
	r, err := readWorks(ctx, d.kafka, d.cl, d.names, since)
	if err != nil {
		return nil, err
	}
	return r, r.closeOn(d.knowNodes(ctx, r.works))
}

// knowNodes has works know how many nodes each flush goes to, where there is one.
func (d *Desk) knowNodes(ctx context.Context, b *works) error {
	if len(b.jobs) == 0 {
		return nil
	}
	store, err := changelog.OpenState(d.kafka, d.names.State)
	if err != nil {
		return err
	}
	defer store.Close()
	st, err := store.LoadOnly(ctx, changelog.KeysUnder("ring", d.group))
	if err != nil {
		return err
	}
	view, err := savedView(st, d.group)
	if err != nil {
		d.log.Warn("ring records that cannot be read are left out", "error", err)
	}
	b.nodes = flushNodes(view)
	return nil
}

func (b *works) find(id string, now time.Time) (Work, error) {
	of := b.byID[id]
	if of == nil || of.request == nil && !strings.HasPrefix(id, KindEpoch+"/") {
		return Work{}, b.unknown(id, now)
	}
	w := b.work(of, now)
	w.Parts = workParts(b.progressOf(of))
	return w, nil
}

func (b *works) unknown(id string, now time.Time) error {
	all := map[string]bool{}
	for _, w := range b.list(now) {
		all[w.ID] = true
	}
	ids := slices.Sorted(maps.Keys(all))
	var begin []string
	for _, other := range ids {
		if strings.HasPrefix(other, id) {
			begin = append(begin, other)
		}
	}
	switch near := mapping.Nearest(id, ids); {
	case len(ids) == 0:
		return refuse("nothing has the id %q: nobody has asked for anything in the last 30 days", id)
	case len(begin) > 0:
		return refuse("nothing has the id %q: did you mean %s?", id, someOf(begin))
	case near != "":
		return refuse("nothing has the id %q: did you mean %q?", id, near)
	}
	return refuse("nothing has the id %q (invalidator replay list, invalidator flush list)", id)
}

// followEvery is how often the topics are asked how far a work is.
const followEvery = time.Second

// Follow tells how far a work is, each time that something is another, until it has ended or ctx has: then it returns ctx's error. trouble is told why the topics
// cannot be read at the moment, which is tried again. It returns how the work stands.
func (d *Desk) Follow(ctx context.Context, id string, each func(Work), trouble func(error)) (Work, error) {
	r, err := d.follow(ctx, id)
	if err != nil {
		return Work{}, err
	}
	defer r.close()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	last := ""
	for {
		w, err := r.works.find(id, time.Now())
		if err != nil {
			return w, err
		}
		if now := fmt.Sprint(w.State, w.Why, w.Last, w.Done, w.All, w.Keys, w.Copies); now != last {
			last = now
			each(w)
		}
		if w.State.Ended() {
			return w, nil
		}
		select {
		case <-ctx.Done():
			return w, ctx.Err()
		case <-tick.C:
		}
		if err := r.read(ctx); err != nil && ctx.Err() == nil {
			trouble(err)
		}
	}
}
