package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// awaitFirstStart does firstStart until it works. It reports false when ctx has ended.
func (g *Group) awaitFirstStart(ctx context.Context) bool {
	for backoff := startBackoffMin; ; backoff = min(2*backoff, startBackoffMax) {
		err := g.firstStart(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		g.log.Error("setting where the group starts; tried again until it works", "group", g.opts.Group, "error", err, "again_in", backoff)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(backoff):
		}
	}
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
	var seen []Write
	offsets.Each(func(o kadm.Offset) {
		seen = append(seen, Write{seenKey(g.opts.Group, Partition{o.Topic, o.Partition}), seenRecord(o.At)})
	})
	if _, err := g.opts.State.PutAll(ctx, seen); err != nil {
		return err
	}
	return g.opts.State.Put(ctx, mark, []byte(`{"v":1,"started":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`))
}

func seenKey(group string, p Partition) string {
	return StateKey("seen", group, p.Topic, strconv.Itoa(int(p.Number)))
}

func seenRecord(first int64) []byte {
	return []byte(`{"v":1,"first_offset":` + strconv.FormatInt(first, 10) + `}`)
}

// firstOffsets applies each source's first_start to the topics that stand now; a topic that two sources name is the first one's.
// A partition that already has a commit (the mark was not reached last time) keeps it. One that cannot be asked for is left
// out, and so begins at its beginning: it is no reason for the others to wait.
func (g *Group) firstOffsets(ctx context.Context, adm *kadm.Client) (kadm.Offsets, error) {
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	committed, err := adm.FetchOffsets(ctx, g.opts.Group)
	if err == nil {
		err = committed.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetching the group's offsets: %w", err)
	}
	out := kadm.Offsets{}
	left := topics.Names()
	for _, s := range g.opts.Starts {
		var names []string
		whole := WholeName(s.Pattern)
		left = slices.DeleteFunc(left, func(t string) bool {
			if whole.MatchString(t) {
				names = append(names, t)
				return true
			}
			return false
		})
		if len(names) == 0 {
			continue
		}
		at, err := listAt(ctx, adm, s.At, names)
		if err != nil {
			return nil, err
		}
		at.Each(func(o kadm.ListedOffset) {
			if o.Err != nil {
				g.log.Warn("looking up where a partition starts; it will be read from its beginning", "topic", o.Topic, "partition", o.Partition, "error", o.Err)
			} else if _, ok := committed.Lookup(o.Topic, o.Partition); !ok {
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
	if err != nil {
		return nil, fmt.Errorf("looking up %s of %s: %w", at, strings.Join(topics, ", "), err)
	}
	return l, nil
}
