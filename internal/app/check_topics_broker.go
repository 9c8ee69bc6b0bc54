package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
)

func topicFindings(findings []changelog.Finding) (out []Finding) {
	for _, f := range findings {
		where := "kafka"
		if f.Topic != "" {
			where += ", topic " + f.Topic
		}
		out = append(out, Finding{string(f.Severity), where, hinted(f.What, f.Hint)})
	}
	return out
}

// checkBroker looks at the settings of the topics that somebody else feeds, and at what our user may do.
func checkBroker(ctx context.Context, c *config.Config, cl *kgo.Client) []Finding {
	others, ours, err := changeTopics(ctx, c, cl)
	if err != nil {
		return failed("kafka", err)
	}
	findings, err := changelog.CheckOthers(ctx, cl, others, c.Cache.MaxTTL)
	out := topicFindings(findings)
	if err != nil {
		out = append(out, failed("kafka", err)...)
	}
	findings, err = changelog.CheckRights(ctx, cl, rightsFor(c, others, ours))
	if out = append(out, topicFindings(findings)...); err != nil {
		out = append(out, failed("kafka", err)...)
	}
	return out
}

// changeTopics lists the change topics that there are: those that somebody else feeds, and those of our own sources.
func changeTopics(ctx context.Context, c *config.Config, cl *kgo.Client) (others, ours []string, err error) {
	if len(c.Sources) == 0 {
		return nil, nil, nil
	}
	sources, _, err := topicsOf(c)
	if err != nil {
		return nil, nil, nil // which Check tells of the sources
	}
	all, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("listing topics: %w", err)
	}
	for _, topic := range all.Names() {
		for i, s := range sources {
			if !s.Pattern.MatchString(topic) {
				continue
			}
			if c.Sources[i].Topics != nil {
				others = append(others, topic)
			} else {
				ours = append(ours, topic)
			}
			break
		}
	}
	slices.Sort(others)
	slices.Sort(ours)
	return others, ours, nil
}

// rightsFor are what docs/TOPICS.md says that a user needs, for run, and for feed where a source is ours to feed.
func rightsFor(c *config.Config, others, ours []string) changelog.Rights {
	n := changelog.NamesFor(c.Kafka.TopicPrefix)
	r := changelog.Rights{
		User: kafkaUser(c.Kafka), Reads: append([]string{n.Keys}, others...), Makes: topicSettings(c).Own(), Groups: []string{c.Kafka.Group},
		Writes: append([]string{n.State, n.Control, n.Status, n.DeadLetter, n.Refresh}, ours...),
		Others: func(topic string) bool { return slices.Contains(others, topic) },
	}
	if c.Admin.Token.Reveal() != "" { // keys that are posted are written there
		r.Writes = append(r.Writes, n.Keys)
	}
	for _, s := range c.Sources {
		if s.Topics == nil {
			r.Writes = append(r.Writes, n.Leader)
			r.Groups = append(r.Groups, c.Kafka.Group+".feed."+s.Name)
		}
	}
	return r
}

// topicsEvery is how often a worker looks at what somebody else feeds.
const topicsEvery = 5 * time.Minute

// watchTopics looks at the topics that somebody else feeds when a worker starts, and again and again, and logs what is in error
// there once, and when it is over. It stops nothing: a topic that is compacted is still read, since deleting what is left of it is
// better than deleting nothing, and what cannot be decoded is parked record by record.
func watchTopics(ctx context.Context, c *config.Config, set func() *mapping.Set, log *slog.Logger, every time.Duration) {
	fed := slices.ContainsFunc(c.Sources, func(s config.Source) bool { return s.Topics != nil })
	if !fed {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var told []Finding
	for {
		if now, ok := topicErrors(ctx, c, set(), log); ok {
			for _, f := range now {
				if !slices.Contains(told, f) {
					log.Error("a check of the topics that somebody else feeds fails: they are read as far as they can be, and looked at again", "finding", f.String())
				}
			}
			for _, f := range told {
				if !slices.Contains(now, f) {
					log.Info("a finding about the topics that somebody else feeds is over", "finding", f.String())
				}
			}
			told = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// topicErrors are what is in error; ok is false where the broker could not be asked, which the worker itself meets and tells.
func topicErrors(ctx context.Context, c *config.Config, set *mapping.Set, log *slog.Logger) (all []Finding, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, false
	}
	cl, err := o.Connect(ctx)
	if err != nil {
		return nil, false
	}
	defer cl.Close()
	_, _, seen := seeTopics(ctx, c, set, log)
	for _, f := range append(seen, checkBroker(ctx, c, cl)...) {
		if f.Severity == string(cdc.SeverityError) {
			all = append(all, f)
		}
	}
	return all, ctx.Err() == nil
}

// inBackground runs fn until the returned function is called, which waits for it.
func inBackground(ctx context.Context, fn func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(ctx)
	}()
	return func() { cancel(); <-done }
}
