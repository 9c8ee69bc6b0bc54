package changelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc"
)

// CheckOthers looks at the settings of change topics that somebody else made, against what a reader of changes needs of them:
// that a change stays for maxTTL (cache.max_ttl; zero: its default) and an hour, with its before image. Topics with the same
// thing wrong are one finding, of the first of them. A topic that is gone, or whose settings we may not ask for, is passed over:
// CheckRights tells of the second.
func CheckOthers(ctx context.Context, cl *kgo.Client, topics []string, maxTTL time.Duration) ([]Finding, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	if maxTTL == 0 {
		maxTTL = DefaultMaxTTL
	}
	there, brokers, err := topicsAsked(ctx, cl, topics)
	if err != nil {
		return nil, err
	}
	settings, err := settingsOf(ctx, cl, topics)
	if err != nil {
		return nil, err
	}
	c := &othersCheck{maxTTL: maxTTL, brokers: brokers, more: map[Finding][]string{}}
	for _, topic := range slices.Sorted(maps.Keys(settings)) {
		replicas := 0
		if parts := there[topic].Partitions; len(parts) > 0 {
			replicas = len(parts[0].Replicas)
		}
		c.topic(topic, replicas, settings[topic])
	}
	return c.findings(), nil
}

// topicsAsked asks for topics, with what our user may do to each, and for the number of brokers. A topic that it may not see is an answer
// like another here, where kadm makes it the error of all.
func topicsAsked(ctx context.Context, cl *kgo.Client, topics []string) (map[string]kmsg.MetadataResponseTopic, int, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, 0, fmt.Errorf("asking for topics: %w", err)
	}
	there := make(map[string]kmsg.MetadataResponseTopic, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic != nil {
			there[*t.Topic] = t
		}
	}
	return there, len(resp.Brokers), nil
}

// settingsOf asks for the settings of topics. One that is gone, or that our user may not ask for, is left out.
func settingsOf(ctx context.Context, cl *kgo.Client, topics []string) (map[string]map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, r)
	}
	all := map[string]map[string]string{}
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("asking for topic settings: %w", shard.Err)
		}
		for _, r := range shard.Resp.(*kmsg.DescribeConfigsResponse).Resources {
			switch err := kerr.ErrorForCode(r.ErrorCode); {
			case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.TopicAuthorizationFailed):
				continue
			case err != nil:
				return nil, topicError(r.ResourceName, "asking for its settings", err, "")
			}
			have := map[string]string{}
			for _, kv := range r.Configs {
				if kv.Value != nil {
					have[kv.Name] = *kv.Value
				}
			}
			all[r.ResourceName] = have
		}
	}
	return all, nil
}

// othersCheck gathers what is wrong, so that a hundred tables with one setting are one line.
type othersCheck struct {
	maxTTL  time.Duration
	brokers int
	order   []Finding            // without a topic
	more    map[Finding][]string // their topics
}

// topicHere stands in a hint for the topic.
const topicHere = "\x00"

func (c *othersCheck) add(topic string, f Finding) {
	if c.more[f] == nil {
		c.order = append(c.order, f)
	}
	c.more[f] = append(c.more[f], topic)
}

// setting adds one whose mending is a topic's setting.
func (c *othersCheck) setting(topic string, sev cdc.Severity, key, value, what string) {
	c.add(topic, Finding{Severity: sev, What: what,
		Hint: fmt.Sprintf("kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s", topicHere, key, value)})
}

func (c *othersCheck) findings() (all []Finding) {
	for _, f := range c.order {
		topics := c.more[f]
		f.Topic, f.Hint = topics[0], strings.ReplaceAll(f.Hint, topicHere, topics[0])
		if n := len(topics) - 1; n > 0 {
			f.What = fmt.Sprintf("%s; so of %d more: %s", f.What, n, fewOf(topics[1:]))
		}
		all = append(all, f)
	}
	return all
}

// fewOf lists some names.
func fewOf(names []string) string {
	const few = 5
	if len(names) > few {
		return strings.Join(names[:few], ", ") + " …"
	}
	return strings.Join(names, ", ")
}

// topic compares one topic. A setting that the broker does not show is taken for right: some hosted ones show only a part.
func (c *othersCheck) topic(topic string, replicas int, have map[string]string) {
	if policy := have["cleanup.policy"]; strings.Contains(policy, string(Compact)) {
		c.setting(topic, cdc.SeverityError, "cleanup.policy", string(Delete), "cleanup.policy is "+policy+cleanupWhy[Delete])
	}
	keep := c.maxTTL + RetentionMargin
	if ms, err := strconv.ParseInt(have["retention.ms"], 10, 64); err == nil && ms >= 0 && ms < keep.Milliseconds() {
		c.setting(topic, cdc.SeverityWarning, "retention.ms", strconv.FormatInt(keep.Milliseconds(), 10), fmt.Sprintf(
			"retention.ms is %s, less than cache.max_ttl and an hour (%s): copies outlive the changes that a worker which was away, or a replay, must still read",
			time.Duration(ms)*time.Millisecond, keep))
	}
	if n, err := strconv.ParseInt(have["retention.bytes"], 10, 64); err == nil && n >= 0 {
		c.setting(topic, cdc.SeverityWarning, "retention.bytes", "-1", fmt.Sprintf(
			"retention.bytes is %d: a busy hour removes changes before their time", n))
	}
	if kind := have["message.timestamp.type"]; kind == "CreateTime" {
		c.setting(topic, cdc.SeverityWarning, "message.timestamp.type", "LogAppendTime",
			"message.timestamp.type is CreateTime: a replay finds its window by record times, which are then of the producer's clock, or of the commit, and it misses what was appended late")
	}
	if replicas == 1 && c.brokers > 1 {
		c.add(topic, Finding{Severity: cdc.SeverityWarning, What: fmt.Sprintf("it has 1 replica on %d brokers: changes are lost with a disk", c.brokers),
			Hint: "reassign its partitions (kafka-reassign-partitions.sh), and give the connector topic.creation.default.replication.factor=3"})
	}
	if replicas < 2 {
		return
	}
	if have["unclean.leader.election.enable"] == "true" {
		c.setting(topic, cdc.SeverityWarning, "unclean.leader.election.enable", "false",
			"unclean.leader.election.enable is true: an unclean leader loses acknowledged changes silently")
	}
	if n, err := strconv.Atoi(have["min.insync.replicas"]); err == nil && n < 2 {
		c.setting(topic, cdc.SeverityWarning, "min.insync.replicas", "2", "min.insync.replicas is 1: an acknowledged change is lost with one broker")
	}
}
