package control

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

	"invalidator/internal/changelog"
	"invalidator/replay"
)

const (
	// lateSaid is how long what partitions tell of a replay may come after their states say that it is done.
	lateSaid = 10 * time.Second
	// goneFor is how long a topic must have been missing before nothing is to be done there any more.
	goneFor = time.Minute
	// oldNews is how old a plan may be whose end is still told. The log of then is gone, and so may be the result that somebody told: the status topic has more
	// records, and loses its oldest ones sooner than the control topic.
	oldNews = 7 * 24 * time.Hour
	// before is how much before a plan the status topic is read for what is told of it: clocks of two brokers differ.
	before = time.Minute
)

// ends says how replays end, for as long as one clerk has the office. It reads the status topic, where others may have said so, and the partitions' states, both only while
// there is a replay whose end is not told.
type ends struct {
	opts *ClerkOptions
	adm  *kadm.Client
	past *changelog.Log

	status *tail
	states *states
	told   map[string]bool                                    // replays whose result is on the status topic
	open   map[string]*ending                                 // of those that are not told
	said   map[string]map[changelog.Partition]replay.Progress // the last of each replay and partition
	gone   map[string]time.Time                               // topics that do not exist, since when
}

// ending is a replay whose end is not told.
type ending struct {
	at     time.Time // it was planned, or cancelled before that
	plan   *Planned  // nil: there is none that counts
	cancel *Asked    // nil: it is not cancelled
	done   map[changelog.Partition]bool
	since  time.Time // all partitions are done; zero: they are not
}

func newEnds(o *ClerkOptions, adm *kadm.Client, past *changelog.Log) *ends {
	return &ends{opts: o, adm: adm, past: past, told: map[string]bool{}, open: map[string]*ending{}, said: map[string]map[changelog.Partition]replay.Progress{}, gone: map[string]time.Time{}}
}

func (e *ends) letGo() {
	if e.states != nil {
		e.states.close()
	}
	e.states, e.status = nil, nil
	clear(e.said)
}

// turn tells of the replays that have ended.
func (e *ends) turn(ctx context.Context) error {
	all := e.opts.State.replays(time.Now().Add(-oldNews))
	maps.DeleteFunc(e.told, func(id string, _ bool) bool { return all[id] == nil })
	maps.DeleteFunc(e.open, func(id string, _ *ending) bool { return all[id] == nil })
	for id, now := range all {
		if e.told[id] {
			continue
		}
		if was := e.open[id]; was != nil {
			now.done, now.since = was.done, was.since
		}
		e.open[id] = now
	}
	if len(e.open) == 0 {
		e.letGo()
		return nil
	}
	if e.status == nil {
		oldest := time.Now()
		for _, o := range e.open {
			if o.at.Before(oldest) {
				oldest = o.at
			}
		}
		e.status = &tail{topic: e.opts.Names.Status, since: oldest.Add(-before), log: e.past, adm: e.adm}
	}
	if err := e.status.look(ctx, func() { clear(e.said) }, e.hear); err != nil {
		return err
	}
	if err := e.look(ctx); err != nil {
		return err
	}
	var failed error
	for _, id := range slices.Sorted(maps.Keys(e.open)) {
		if err := e.tell(ctx, id, e.open[id]); err != nil {
			failed = errors.Join(failed, fmt.Errorf("telling how the replay %s ended: %w", id, err))
		}
	}
	return failed
}

// hear takes in records of the status topic.
func (e *ends) hear(rs []changelog.Record) error {
	for _, r := range rs {
		record, err := replay.DecodeStatus(r.Value)
		if err != nil {
			continue // for others
		}
		switch s := record.(type) {
		case replay.Result:
			e.tellNoMore(s.ID)
		case replay.Progress:
			if s.Part != nil || strings.HasPrefix(s.ID, "epoch/") || e.told[s.ID] {
				continue
			}
			if e.said[s.ID] == nil {
				e.said[s.ID] = map[changelog.Partition]replay.Progress{}
			}
			e.said[s.ID][changelog.Partition{Topic: s.Range.Topic, Number: s.Range.Partition}] = s
		}
	}
	return nil
}

func (e *ends) tellNoMore(id string) {
	e.told[id] = true
	delete(e.open, id)
	delete(e.said, id)
}

// look sees which partitions are done.
func (e *ends) look(ctx context.Context) error {
	topics := map[string]bool{}
	for _, o := range e.open {
		if o.waits() {
			for _, r := range o.plan.Ranges {
				topics[r.Topic] = true
			}
		}
	}
	ids, err := e.read(ctx, topics)
	if err != nil {
		return err
	}
	control := e.opts.State.Topic()
	var failed error
	for id, o := range e.open {
		if !o.waits() {
			continue
		}
		all := true
		for _, r := range o.plan.Ranges {
			p := changelog.Partition{Topic: r.Topic, Number: r.Partition}
			if !o.done[p] && !e.noMore(&r, ids) {
				done, err := e.states.done(p, id, control, o.plan.Offset)
				if failed = cmp.Or(failed, err); !done {
					all = false
					continue
				}
			}
			o.done[p] = true
		}
		if all && o.since.IsZero() {
			o.since = time.Now()
		}
	}
	return failed
}

// read takes in what the partitions' states say, and tells which of the topics exist.
func (e *ends) read(ctx context.Context, topics map[string]bool) (ids map[string]string, err error) {
	if len(topics) == 0 {
		return nil, nil
	}
	if e.states == nil {
		if e.states, err = openStates(e.opts.Store, e.opts.Group); err != nil {
			return nil, err
		}
	}
	if err := e.states.read(ctx); err != nil {
		return nil, err
	}
	if ids, err = topicIDs(ctx, e.adm, slices.Sorted(maps.Keys(topics))...); err != nil {
		return nil, err
	}
	e.seeGone(topics, ids, time.Now())
	return ids, nil
}

// waits reports whether the end is when its partitions are done.
func (o *ending) waits() bool { return o.cancel == nil && o.plan != nil && o.plan.Refused == "" }

// seeGone notes since when topics do not exist.
func (e *ends) seeGone(asked map[string]bool, there map[string]string, now time.Time) {
	maps.DeleteFunc(e.gone, func(t string, _ time.Time) bool { _, is := there[t]; return is })
	for t := range asked {
		if _, is := there[t]; !is && e.gone[t].IsZero() {
			e.gone[t] = now
		}
	}
}

// noMore reports whether the partition is of a topic that is no more: removed, or made again.
func (e *ends) noMore(r *replay.PlanRange, ids map[string]string) bool {
	id, there := ids[r.Topic]
	if !there {
		return time.Since(e.gone[r.Topic]) >= goneFor
	}
	return id != "" && r.TopicID != "" && id != r.TopicID
}

// tell writes the result of a replay that has ended.
func (e *ends) tell(ctx context.Context, id string, o *ending) error {
	result := replay.Result{ID: id, At: time.Now().UTC(), Worker: e.opts.Worker}
	for _, p := range e.said[id] {
		result.Keys, result.Copies, result.Owed, result.Lost = result.Keys+p.Keys, result.Copies+p.Copies, result.Owed+p.Owed, result.Lost+p.Lost
	}
	switch {
	case o.cancel != nil:
		result.Error = "cancelled by " + o.cancel.By
		if o.cancel.Reason != "" {
			result.Error += ": " + o.cancel.Reason
		}
	case o.plan.Refused != "":
		result.Error = o.plan.Refused
	case o.since.IsZero():
		return nil
	default:
		silent := e.silent(id, o.plan)
		if len(silent) > 0 && time.Since(o.since) < lateSaid {
			return nil
		}
		lost, err := e.mayLack(ctx, silent)
		if err != nil {
			return err
		}
		result.Clean = result.Lost == 0 && len(lost) == 0
		if len(lost) > 0 {
			result.Error = "it is done, but the log may not have held all of it any more: " + few(lost)
		}
	}
	value, err := replay.Encode(result)
	if err == nil {
		err = e.opts.Say(ctx, e.opts.Names.Status, id, value)
	}
	if err != nil {
		return err
	}
	e.tellNoMore(id)
	return nil
}

// silent are the parts of a plan whose end nobody has told. It is told for people, and may be left out.
func (e *ends) silent(id string, p *Planned) (parts []replay.PlanRange) {
	for _, r := range p.Ranges {
		if !e.said[id][changelog.Partition{Topic: r.Topic, Number: r.Partition}].Done {
			parts = append(parts, r)
		}
	}
	return parts
}

// mayLack names those parts of which the log may have lost something since they were planned. Of one that still begins where it did then nothing was.
func (e *ends) mayLack(ctx context.Context, parts []replay.PlanRange) (names []string, err error) {
	if len(parts) == 0 {
		return nil, nil
	}
	var topics []string
	for _, r := range parts {
		topics = append(topics, r.Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	ids, err := topicIDs(ctx, e.adm, topics...)
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(topics, func(t string) bool { _, is := ids[t]; return !is })
	var starts kadm.ListedOffsets
	if len(there) > 0 { // it would be all
		starts, err = e.adm.ListStartOffsets(ctx, there...)
		if err = cmp.Or(err, starts.Error()); err != nil {
			return nil, fmt.Errorf("asking where the change topics begin: %w", err)
		}
	}
	for _, r := range parts {
		if now, ok := starts.Lookup(r.Topic, r.Partition); !ok || now.Offset > r.From || ids[r.Topic] != r.TopicID {
			names = append(names, changelog.Partition{Topic: r.Topic, Number: r.Partition}.String())
		}
	}
	return names, nil
}
