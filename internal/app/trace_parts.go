package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

// tracePart is a partition that may hold changes of the key's pool.
type tracePart struct {
	changelog.Partition
	source    *pipeline.Source
	topicID   string
	from, to  int64 // what is read: [from, to)
	start     int64 // of the log
	kept      bool  // the topic keeps records for so long that none of the window's has left it
	committed int64 // by the group; -1: nothing
	known     bool  // whether it was said
}

// partitions finds what to read: of every source the topics that may hold changes of the pool, from the first record that is not older
// than the window.
func (t *tracer) partitions(ctx context.Context, cl *kgo.Client) error {
	sources, _, err := readsOf(t.config)
	if err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	listed, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	ids, of := map[string]string{}, map[string]*pipeline.Source{}
	var names []string
	for _, d := range listed.Sorted() {
		s := pipeline.SourceOf(sources, d.Topic)
		if s == nil || !t.feeds(sources, s, d.Topic) {
			continue
		}
		if d.Err != nil {
			t.unknown("what topic %s holds: %v", d.Topic, d.Err)
			continue
		}
		names, of[d.Topic] = append(names, d.Topic), s
		if d.ID != (kadm.TopicID{}) {
			ids[d.Topic] = d.ID.String()
		}
	}
	t.out.Read.Topics = len(names)
	if len(names) == 0 { // it would be all
		t.unknown("any change: no topic is there of which the configuration's sources say that it may hold rows of pool %s", t.pool)
		return nil
	}
	return t.offsets(ctx, adm, names, func(p changelog.Partition) *tracePart {
		return &tracePart{Partition: p, source: of[p.Topic], topicID: ids[p.Topic]}
	})
}

// feeds reports whether a topic may hold changes that give the key. Only the name of a topic of our own says that for certain; keys of any pool may be
// sent.
func (t *tracer) feeds(sources []*pipeline.Source, s *pipeline.Source, topic string) bool {
	if topic == t.names.Keys || !t.claims {
		return topic == t.names.Keys
	}
	i := slices.Index(sources, s)
	if i >= len(t.config.Sources) || t.config.Sources[i].Topics != nil {
		return true
	}
	tables := topicTables(t.config.Sources[i], topic)
	if len(tables) == 0 {
		return true
	}
	for _, set := range t.sets.all() {
		if slices.Contains(set.Pools(s.Name, tables), t.pool) {
			return true
		}
	}
	return false
}

// offsets asks where each partition starts, where the window lies in it, and where it ends.
func (t *tracer) offsets(ctx context.Context, adm *kadm.Client, names []string, newPart func(changelog.Partition) *tracePart) error {
	at := func(when time.Time) (kadm.ListedOffsets, error) {
		return adm.ListOffsetsAfterMilli(ctx, max(0, when.UnixMilli()), names...) // less than 0 are words of the protocol
	}
	from, err := at(t.q.Since.Add(-traceBefore))
	if err != nil {
		return fmt.Errorf("asking where the change topics stood at %s: %w", t.q.Since.UTC().Format(time.RFC3339), err)
	}
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err != nil {
		return fmt.Errorf("asking where the change topics start: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if t.ended && err == nil {
		ends, err = at(t.until.Add(traceAfter))
	}
	if err != nil {
		return fmt.Errorf("asking where the change topics end: %w", err)
	}
	kept := keptSince(ctx, adm, names, t.q.Since)
	ends.Each(func(e kadm.ListedOffset) {
		p := newPart(changelog.Partition{Topic: e.Topic, Number: e.Partition})
		f, ok1 := from.Lookup(e.Topic, e.Partition)
		s, ok2 := starts.Lookup(e.Topic, e.Partition)
		if !ok1 || !ok2 || cmp.Or(e.Err, f.Err, s.Err) != nil {
			t.unknown("what %s holds: %v", p.Partition, cmp.Or(e.Err, f.Err, s.Err, errors.New("the broker does not say where it begins")))
			return
		}
		p.start, p.from, p.to, p.kept = s.Offset, max(f.Offset, s.Offset), e.Offset, kept[e.Topic]
		t.parts = append(t.parts, p)
		t.out.Read.Of += max(p.to-p.from, 0)
	})
	slices.SortFunc(t.parts, func(a, b *tracePart) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	t.out.Read.Partitions = len(t.parts)
	return nil
}

// keptSince says which topics keep what was written since then. One whose settings we may not ask for is none of them.
func keptSince(ctx context.Context, adm *kadm.Client, names []string, since time.Time) map[string]bool {
	kept := map[string]bool{}
	all, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return kept
	}
	for _, t := range all {
		for _, c := range t.Configs {
			ms, err := strconv.ParseInt(c.MaybeValue(), 10, 64)
			if c.Key == "retention.ms" && err == nil {
				kept[t.Name] = ms < 0 || ms > time.Since(since).Milliseconds()
			}
		}
	}
	return kept
}

// commits asks how far the group is.
func (t *tracer) commits(ctx context.Context) error {
	lags, err := changelog.ReadLags(ctx, t.kafka, t.config.Kafka.Group)
	if err != nil {
		return err
	}
	at := map[changelog.Partition]changelog.Lag{}
	for _, l := range lags {
		at[l.Partition] = l
	}
	for _, p := range t.parts {
		l, known := at[p.Partition]
		p.committed, p.known = l.Committed, known
	}
	return nil
}

// part is a partition that was read.
func (t *tracer) part(p changelog.Partition) *tracePart {
	i := slices.IndexFunc(t.parts, func(x *tracePart) bool { return x.Partition == p })
	if i < 0 {
		return nil
	}
	return t.parts[i]
}

// tally counts what is alike, and where the first of it was.
type tally struct {
	n     int64
	first string
}

// count notes one of what is told as text, from a partition's goroutine. The texts are a closed set: they name templates and reasons.
func (t *tracer) count(text, where string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.unread[text]
	if c == nil {
		c = &tally{first: where}
		t.unread[text] = c
	}
	c.n++
}

// tellCounts adds what was counted to what cannot be known.
func (t *tracer) tellCounts() {
	for _, text := range slices.Sorted(maps.Keys(t.unread)) {
		c := t.unread[text]
		t.unknown("whether the key is among %s %s; the first: %s", many(c.n, "record", "records"), text, c.first)
	}
}

func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
