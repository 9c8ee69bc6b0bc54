package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/internal/changelog"
	"invalidator/internal/owed"
	"invalidator/internal/pipeline"
	"invalidator/sink"
)

// traceState is what the state topic says of a fleet, as far as it may concern the window.
type traceState struct {
	*changelog.State
	rings  []traceRing // by epoch
	hot    int         // copies that the registry of hot keys gives the key, at most
	lines  map[changelog.Partition][]traceLine
	sum    *owed.Sum
	pauses map[string]changelog.Pause
	bad    []string // what could not be read
}

// traceRing is a ring record, and its topology alone.
type traceRing struct {
	changelog.SavedRing
	record   *sink.Record
	topology *sink.Topology
}

// traceLine is a line of a journal, and the time that it stands for: it lies in [from, to).
type traceLine struct {
	pipeline.JournalLine
	from, to time.Time
	topicID  string // of the log that it is about; empty: not known
}

// Names of a journal's records: a minute, of which each line is a second, or an hour, of which each is a minute.
const (
	traceMinute = "2006-01-02T15:04"
	traceHour   = "2006-01-02T15"
)

// loadState reads the state topic.
func (t *tracer) loadState(ctx context.Context) error {
	store, err := changelog.OpenState(t.kafka, t.names.State)
	if err != nil {
		return err
	}
	defer store.Close()
	st, err := store.LoadOnly(ctx, t.wanted())
	if err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("%w (run makes it when it starts; is kafka.topic_prefix right?)", err)
		}
		return err
	}
	fleet := t.config.Kafka.Group
	s := &traceState{State: st, lines: map[changelog.Partition][]traceLine{}, sum: owed.NewSum(fleet)}
	for key, e := range st.Under("partition", fleet) {
		s.sum.Apply(key, e.Value)
	}
	s.loadRings(fleet)
	hot, err := st.LoadHot(fleet)
	s.fails(err)
	s.hot = hot[t.base].Most
	s.pauses, err = st.LoadPauses(fleet)
	s.fails(err)
	s.loadLines(fleet, t.q.Since.Add(-traceBefore))
	t.state = s
	return nil
}

// wanted chooses keys. It is asked from several goroutines.
func (t *tracer) wanted() func(key []byte) bool {
	fleet := t.config.Kafka.Group
	under := map[string]func([]byte) bool{"process": func([]byte) bool { return true }}
	for _, kind := range []string{"partition", "journal", "mappingset", "mappingtext", "mappings", "ring", "pause"} {
		under[kind] = changelog.KeysUnder(kind, fleet)
	}
	hot := changelog.HotKey(fleet, t.base)
	since := t.q.Since.Add(-traceBefore)
	return func(key []byte) bool {
		kind, _, _ := bytes.Cut(key, []byte("/"))
		switch of := under[string(kind)]; {
		case string(key) == hot:
			return true
		case of == nil || !of(key):
			return false
		case string(kind) != "journal":
			return true
		}
		_, end, err := traceSpan(string(key[bytes.LastIndexByte(key, '/')+1:]))
		return err != nil || end.After(since) // one that is not understood is told of later
	}
}

// traceSpan is the time that a journal's record is about. Its name needs no decoding: only a '/' or a '%' would.
func traceSpan(name string) (width time.Duration, end time.Time, err error) {
	if at, err := time.Parse(traceMinute, name); err == nil {
		return time.Second, at.Add(time.Minute), nil
	}
	at, err := time.Parse(traceHour, name)
	if err != nil {
		return 0, end, fmt.Errorf("the name %q is neither a minute nor an hour", name)
	}
	return time.Minute, at.Add(time.Hour), nil
}

func (s *traceState) fails(err error) {
	if err != nil {
		s.bad = append(s.bad, err.Error())
	}
}

func (s *traceState) loadRings(fleet string) {
	saved, err := s.LoadRings(fleet)
	s.fails(err)
	for _, epoch := range slices.Sorted(maps.Keys(saved)) {
		r := traceRing{SavedRing: saved[epoch]}
		r.record, err = sink.ParseRecord(changelog.RingKey(fleet, epoch), r.Record)
		if err == nil {
			r.topology, err = sink.NewTopology(r.record)
		}
		if err != nil {
			s.fails(err)
			continue
		}
		s.rings = append(s.rings, r)
	}
}

// prefix is what clients put before keys under the newest ring record.
func (s *traceState) prefix() string {
	if len(s.rings) == 0 {
		return ""
	}
	return s.rings[len(s.rings)-1].topology.KeyPrefix()
}

// loadLines takes the lines of all journals that are about since or later, whoever wrote them: that something was issued is a fact.
func (s *traceState) loadLines(fleet string, since time.Time) {
	add := func(p changelog.Partition, topicID string, width time.Duration, lines []pipeline.JournalLine) {
		for _, l := range lines {
			to := time.Unix(l.At+1, 0).UTC()
			if to.After(since) {
				s.lines[p] = append(s.lines[p], traceLine{l, to.Add(-width), to, topicID})
			}
		}
	}
	for key, e := range s.Under("partition", fleet) {
		p, _, _, err := changelog.SplitPartitionKey(key)
		if err != nil {
			continue // no key that any version has written
		}
		if _, _, err = pipeline.DebtsOf(e.Value); err != nil {
			continue // what its lines mean is not known; who asks for its debts is told
		}
		var page struct{ Journal []pipeline.JournalLine }
		if err := json.Unmarshal(e.Value, &page); err != nil {
			s.fails(s.BadRecord(key, e, err))
			continue
		}
		add(p, "", time.Second, page.Journal)
	}
	for key, e := range s.Under("journal", fleet) {
		p, id, width, lines, err := journalRecord(key, e.Value)
		if err != nil {
			s.fails(s.BadRecord(key, e, err))
			continue
		}
		add(p, id, width, lines)
	}
	for _, lines := range s.lines {
		slices.SortStableFunc(lines, func(a, b traceLine) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	}
}

// journalRecord reads a record of a journal: journal/<group>/<topic>/<partition>/<topic id>/<writer>/<name>, docs/TOPICS.md.
func journalRecord(key string, value []byte) (p changelog.Partition, topicID string, width time.Duration, lines []pipeline.JournalLine, err error) {
	parts, err := changelog.SplitStateKey(key)
	if err == nil && len(parts) != 7 {
		err = fmt.Errorf("a key of %d parts", len(parts))
	}
	if err != nil {
		return p, "", 0, nil, err
	}
	p.Topic = parts[2]
	if _, err = fmt.Sscanf(parts[3], "%d", &p.Number); err != nil {
		return p, "", 0, nil, fmt.Errorf("its partition: %w", err)
	}
	if width, _, err = traceSpan(parts[6]); err != nil {
		return p, "", 0, nil, err
	}
	var page struct {
		V     int
		Lines []pipeline.JournalLine
	}
	if err = json.Unmarshal(value, &page); err == nil && page.V != 1 {
		err = fmt.Errorf("%w: %d", changelog.ErrUnknownVersion, page.V)
	}
	return p, strings.TrimPrefix(parts[4], "-"), width, page.Lines, err
}

// of are the lines of a partition's log, not of one that had its name before.
func (s *traceState) of(p changelog.Partition, topicID string) []traceLine {
	return slices.DeleteFunc(slices.Clone(s.lines[p]), func(l traceLine) bool {
		return l.topicID != "" && topicID != "" && l.topicID != topicID
	})
}
