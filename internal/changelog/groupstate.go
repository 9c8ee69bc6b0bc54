package changelog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionKey is the state topic's key of a partition's state. It carries the writer's generation: a compacted topic keeps
// the last write, and a paused old owner writes late.
func partitionKey(group string, p Partition, generation int32) string {
	return StateKey("partition", group, p.Topic, strconv.Itoa(int(p.Number)), strconv.Itoa(int(generation)))
}

// statePlace is the metadata of an offset commit: where on the state topic the partition's state lies.
func statePlace(partition int32, offset int64) string {
	return `{"v":1,"partition":` + strconv.Itoa(int(partition)) + `,"offset":` + strconv.FormatInt(offset, 10) + `}`
}

// putStates writes the state records of the partitions that are due, all at once, and returns their places as metadata.
func (g *Group) putStates(ctx context.Context, due []Progress, generation int32) (map[Partition]string, error) {
	records := make([]*kgo.Record, len(due))
	for i, pr := range due {
		records[i] = &kgo.Record{
			Topic: g.opts.Names.State,
			Key:   []byte(partitionKey(g.opts.Group, pr.Partition, generation)),
			Value: pr.State,
		}
	}
	places := make(map[Partition]string, len(due))
	for i, r := range g.cl.ProduceSync(ctx, records...) {
		if r.Err != nil {
			return nil, fmt.Errorf("writing the state of %s: %w", due[i].Partition, r.Err)
		}
		places[due[i].Partition] = statePlace(r.Record.Partition, r.Record.Offset)
	}
	return places, nil
}

func commitError(resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil {
		return fmt.Errorf("committing offsets: %w", err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("committing the offset of %s: %w", Partition{t.Topic, p.Partition}, err)
			}
		}
	}
	return nil
}

// firstStart commits, once in the life of a group, where each partition begins that stood before the first worker; what
// appears later begins at its beginning. The mark on the state topic comes last, so that a crash does it again.
func (g *Group) firstStart(ctx context.Context) error {
	mark := StateKey("fleet", g.opts.Group)
	if _, done, err := g.opts.State.Get(ctx, mark); err != nil || done {
		return err
	}
	cl, err := g.opts.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	offsets, err := g.firstOffsets(ctx, adm)
	if err != nil {
		return err
	}
	// A group with members refuses this commit: another first worker was quicker, and its mark is there or coming.
	err = adm.CommitAllOffsets(ctx, g.opts.Group, offsets)
	if errors.Is(err, kerr.UnknownMemberID) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("committing the first offsets: %w", err)
	}
	for t, ps := range offsets {
		for n, o := range ps {
			if err := g.opts.State.Put(ctx, seenKey(g.opts.Group, Partition{t, n}), seenRecord(o.At)); err != nil {
				return err
			}
		}
	}
	return g.opts.State.Put(ctx, mark, []byte(`{"v":1,"started":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`))
}

func seenKey(group string, p Partition) string {
	return StateKey("seen", group, p.Topic, strconv.Itoa(int(p.Number)))
}

// ParkFrom is Park for a record of a group.
func (d *DeadLetter) ParkFrom(ctx context.Context, p Partition, r Record, reason string) error {
	return d.Park(ctx, &kgo.Record{Topic: p.Topic, Partition: p.Number, Offset: r.Offset, Key: r.Key, Value: r.Value}, reason)
}

func seenRecord(first int64) []byte {
	return []byte(`{"v":1,"first_offset":` + strconv.FormatInt(first, 10) + `}`)
}

// firstOffsets applies each source's first_start to the topics that stand now. A partition that already has a commit (the
// mark was not reached last time) keeps it.
func (g *Group) firstOffsets(ctx context.Context, adm *kadm.Client) (kadm.Offsets, error) {
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	committed, err := adm.FetchOffsets(ctx, g.opts.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetching the group's offsets: %w", err)
	}
	out := kadm.Offsets{}
	for _, s := range g.opts.Starts {
		var names []string
		whole := regexp.MustCompile(wholeName(s.Pattern))
		for _, t := range topics.Names() {
			if whole.MatchString(t) {
				names = append(names, t)
			}
		}
		if len(names) == 0 {
			continue
		}
		at, err := listAt(ctx, adm, s.At, names)
		if err != nil {
			return nil, err
		}
		at.Each(func(o kadm.ListedOffset) {
			if _, ok := committed.Lookup(o.Topic, o.Partition); !ok {
				out.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.Offset, LeaderEpoch: -1})
			}
		})
	}
	return out, nil
}

func listAt(ctx context.Context, adm *kadm.Client, at string, topics []string) (kadm.ListedOffsets, error) {
	var (
		l   kadm.ListedOffsets
		err error
	)
	switch strings.ToLower(at) {
	case "earliest":
		l, err = adm.ListStartOffsets(ctx, topics...)
	case "latest":
		l, err = adm.ListEndOffsets(ctx, topics...)
	default:
		var t time.Time
		if t, err = time.Parse(time.RFC3339, at); err != nil {
			return nil, fmt.Errorf("first_start %q is not earliest, latest or a time: %w", at, err)
		}
		l, err = adm.ListOffsetsAfterMilli(ctx, t.UnixMilli(), topics...)
	}
	if err == nil {
		err = l.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("looking up %s of %s: %w", at, strings.Join(topics, ", "), err)
	}
	return l, nil
}
