package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/replay"
)

// reach is what the log has of a window.
type reach struct {
	records int64 // that lie in it: about
	short   []shortTopic
}

// shortTopic is a topic that begins behind a window's begin, and has lost records that may have lain in it: the clerk refuses that too.
type shortTopic struct {
	topic string
	since time.Time // all of its partitions have everything from then on
}

// reach looks at every topic that the fleet has a commit of. What the window of an issued replay takes in that was appended before it, the partitions' owners know.
func (d *Desk) reach(ctx context.Context, r replay.Request, now time.Time) (reach, error) {
	committed, err := d.adm.FetchOffsets(ctx, d.group)
	if err = cmp.Or(err, committed.Error()); errors.Is(err, kerr.GroupIDNotFound) {
		return reach{}, nil // no worker ever ran
	} else if err != nil {
		return reach{}, fmt.Errorf("fetching the commits of group %s: %w", d.group, err)
	}
	topics := slices.Sorted(maps.Keys(committed))
	if len(topics) == 0 { // it would be all
		return reach{}, nil
	}
	at := func(t time.Time) (kadm.ListedOffsets, error) {
		return d.adm.ListOffsetsAfterMilli(ctx, max(0, t.UnixMilli()), topics...)
	}
	starts, err1 := d.adm.ListStartOffsets(ctx, topics...)
	firsts, err5 := at(time.UnixMilli(0))
	from, err2 := at(r.From)
	ends, err3 := d.adm.ListEndOffsets(ctx, topics...)
	to, err4 := ends, error(nil)
	if !r.To.IsZero() {
		to, err4 = at(r.To)
	}
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if some := (*kadm.ShardErrors)(nil); err != nil && !errors.As(err, &some) {
			return reach{}, fmt.Errorf("asking which part of the log lies in the window: %w", err)
		}
	}
	keep := d.retention(ctx, topics)
	var out reach
	short := map[string]time.Time{}
	committed.Each(func(c kadm.OffsetResponse) {
		start, ok1 := starts.Lookup(c.Topic, c.Partition)
		oldest, ok2 := firsts.Lookup(c.Topic, c.Partition)
		first, ok3 := from.Lookup(c.Topic, c.Partition)
		last, ok4 := to.Lookup(c.Topic, c.Partition)
		if !ok1 || !ok2 || !ok3 || !ok4 || cmp.Or(start.Err, oldest.Err, first.Err, last.Err) != nil {
			return // a topic that is gone, or a partition without a leader: it has nothing for us now
		}
		begin := first.Offset
		if r.Window == replay.Issued { // what was behind then was issued later
			begin = min(begin, c.At)
		}
		out.records += max(last.Offset-max(begin, start.Offset), 0)
		if since := wholeSince(start.Offset, oldest.Timestamp, keep[c.Topic], now); r.From.Before(since) && since.After(short[c.Topic]) {
			short[c.Topic] = since
		}
	})
	for _, topic := range slices.Sorted(maps.Keys(short)) {
		out.short = append(out.short, shortTopic{topic, short[topic]})
	}
	return out, nil
}

// wholeSince is since when a partition has all that was committed; zero: always, as far as is known. oldest is its first record's time in milliseconds, -1 where it has none.
// What retention takes is older than keep; 0: that is not known, since a size bounds the topic too, or nothing does and somebody deleted records.
func wholeSince(start, oldest int64, keep time.Duration, now time.Time) (since time.Time) {
	if start == 0 {
		return since
	}
	if oldest >= 0 {
		since = time.UnixMilli(oldest)
	}
	if kept := now.Add(-keep); keep > 0 && (since.IsZero() || kept.Before(since)) {
		since = kept
	}
	if since.IsZero() { // it is empty: no reason against anything, since its owner knows what it sent
		return since
	}
	return since.Add(clocksDiffer)
}

// retention is for how long topics keep records, where time alone decides. What cannot be asked is left out.
func (d *Desk) retention(ctx context.Context, topics []string) map[string]time.Duration {
	all := map[string]time.Duration{}
	configs, err := d.adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		d.log.Debug("asking for how long topics keep records", "error", err)
		return all
	}
	for _, c := range configs {
		ms, size := int64(-1), "-1"
		for _, kv := range c.Configs {
			switch kv.Key {
			case "retention.ms":
				if n, err := strconv.ParseInt(kv.MaybeValue(), 10, 64); err == nil {
					ms = n
				}
			case "retention.bytes":
				size = cmp.Or(kv.MaybeValue(), "-1")
			}
		}
		if ms > 0 && size == "-1" {
			all[c.Name] = time.Duration(ms) * time.Millisecond
		}
	}
	return all
}

// refusal says why a window cannot be replayed whole, what can, and what to do for the rest.
func (x reach) refusal(r replay.Request, k *known, now time.Time) error {
	if len(x.short) == 0 {
		return nil
	}
	var topics []string
	var since time.Time
	for _, s := range x.short {
		topics = append(topics, fmt.Sprintf("%s reaches back to %s", s.topic, s.since.UTC().Format(time.RFC3339)))
		if s.since.After(since) {
			since = s.since
		}
	}
	reachable := "nothing of it can be replayed"
	since = since.Add(time.Second).Truncate(time.Second)
	switch {
	case r.Window == replay.Issued && now.Sub(since) >= time.Second:
		reachable = fmt.Sprintf("all of them reach --since %s", now.Sub(since).Truncate(time.Second))
	case r.Window == replay.Committed && since.Before(cmp.Or(r.To, now)):
		reachable = fmt.Sprintf("all of them reach --from %s", since.UTC().Format(time.RFC3339))
	}
	return refuse("the log has lost a part of this window, which begins at %s: %s; %s. For the rest: %s",
		r.From.UTC().Format(time.RFC3339), someOf(topics), reachable, strings.Join(k.flushes(r.Target), "; "))
}
