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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
)

// Finding is what is wrong with a topic that exists, or with our rights to it. Nothing is altered: who made the topic may have had
// a reason.
type Finding struct {
	Severity cdc.Severity `json:"severity"`
	Topic    string       `json:"topic"` // empty where it is of a consumer group
	What     string       `json:"what"`
	Hint     string       `json:"hint,omitempty"` // the command that mends it
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: topic %s: %s", f.Severity, f.Topic, f.What)
	if f.Topic == "" {
		s = fmt.Sprintf("%s: %s", f.Severity, f.What)
	}
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// ErrTopicNameTaken marks a topic that Kafka will not make beside one whose name differs only in '.' and '_'.
var ErrTopicNameTaken = errors.New("the name differs from another topic's only in '.' and '_'")

// EnsureTopics makes what is missing and compares what is there. Calling it again, or from several processes at once, is
// harmless. An error means that some topic is neither there nor could be made.
func EnsureTopics(ctx context.Context, adm *kadm.Client, specs []TopicSpec) ([]Finding, error) {
	there, err := topicsThere(ctx, adm, specs)
	if err != nil {
		return nil, err
	}
	var existing, fresh []TopicSpec
	for _, s := range specs {
		if _, ok := there.topics[s.Name]; ok {
			existing = append(existing, s)
			continue
		}
		made, err := createTopic(ctx, adm, s, there.brokers)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, s)
		if !made { // somebody was faster, with settings of their own
			existing = append(existing, s)
		}
	}
	if err := awaitTopics(ctx, adm, fresh); err != nil {
		return nil, err
	}
	return compareTopics(ctx, adm, existing)
}

const (
	awaitTime = 10 * time.Second // a cluster that needs longer to elect a leader for a new topic has another trouble
	awaitStep = 20 * time.Millisecond
)

// awaitTopics waits until new topics can be written to: a controller answers before the brokers have heard of them.
func awaitTopics(ctx context.Context, adm *kadm.Client, fresh []TopicSpec) error {
	if len(fresh) == 0 {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, awaitTime)
	defer cancel()
	for {
		there, err := topicsThere(limit, adm, fresh)
		if err != nil && limit.Err() == nil {
			return err
		}
		missing := slices.IndexFunc(fresh, func(s TopicSpec) bool { return !ready(there.topics[s.Name]) })
		if err == nil && missing < 0 {
			return nil
		}
		select {
		case <-limit.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return topicError(fresh[max(missing, 0)].Name, "waiting for a leader after creating it", kerr.LeaderNotAvailable, "are all brokers up?")
		case <-time.After(awaitStep):
		}
	}
}

func ready(t kadm.TopicDetail) bool {
	for _, p := range t.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return t.Err == nil && len(t.Partitions) > 0
}

// CheckTopics only compares: a missing topic is a finding too.
func CheckTopics(ctx context.Context, adm *kadm.Client, specs []TopicSpec) ([]Finding, error) {
	there, err := topicsThere(ctx, adm, specs)
	if err != nil {
		return nil, err
	}
	var (
		existing []TopicSpec
		findings []Finding
	)
	for _, s := range specs {
		if _, ok := there.topics[s.Name]; ok {
			existing = append(existing, s)
		} else {
			findings = append(findings, Finding{cdc.SeverityWarning, s.Name, "does not exist yet", "feed and run make it when they start"})
		}
	}
	more, err := compareTopics(ctx, adm, existing)
	return append(findings, more...), err
}

// EnsureChangeTopic is EnsureTopics for the topic of one table. It returns the name to write to, which is another one
// where Kafka refuses spec.Name for its likeness to an existing topic, and the topic's real max.message.bytes.
func EnsureChangeTopic(ctx context.Context, adm *kadm.Client, spec TopicSpec) (name string, maxBytes int, findings []Finding, err error) {
	findings, err = EnsureTopics(ctx, adm, []TopicSpec{spec})
	if errors.Is(err, ErrTopicNameTaken) {
		spec.Name = alternative(spec.Name)
		findings, err = EnsureTopics(ctx, adm, []TopicSpec{spec})
	}
	if err != nil {
		return "", 0, nil, err
	}
	maxBytes, err = maxMessageBytes(ctx, adm, spec)
	return spec.Name, maxBytes, findings, err
}

func maxMessageBytes(ctx context.Context, adm *kadm.Client, spec TopicSpec) (int, error) {
	have, err := topicConfigs(ctx, adm, spec.Name)
	if err != nil {
		return 0, err
	}
	if n, err := strconv.Atoi(have[spec.Name]["max.message.bytes"]); err == nil && n > 0 {
		return n, nil
	}
	return spec.MaxMessageBytes, nil // a broker that does not say took what it was told, or knows the new topic in a moment
}

// uncached makes the admin client ask a broker, rather than answer from what it heard some seconds ago: a request for the
// authorized operations too, which nobody reads, is the one that it never answers by itself.
func uncached(ctx context.Context) context.Context { return kadm.WithAuthorizedOps(ctx) }

type topicsFound struct {
	brokers int
	topics  kadm.TopicDetails
}

func topicsThere(ctx context.Context, adm *kadm.Client, specs []TopicSpec) (topicsFound, error) {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	m, err := adm.Metadata(uncached(ctx), names...)
	if err != nil {
		return topicsFound{}, fmt.Errorf("asking for topics: %w", err)
	}
	found := topicsFound{len(m.Brokers), kadm.TopicDetails{}}
	for _, t := range m.Topics {
		switch {
		case t.Err == nil, errors.Is(t.Err, kerr.LeaderNotAvailable):
			found.topics[t.Topic] = t
		case !errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			return topicsFound{}, topicError(t.Topic, "asking for the topic", t.Err, "")
		}
	}
	return found, nil
}

// createTopic reports whether it was this call that made the topic.
func createTopic(ctx context.Context, adm *kadm.Client, s TopicSpec, brokers int) (bool, error) {
	rf := s.Replication
	if rf == 0 {
		rf = int16(min(defaultReplication, brokers))
	}
	configs := make(map[string]*string)
	for k, v := range s.configs(rf) {
		configs[k] = &v
	}
	res, err := adm.CreateTopics(ctx, s.Partitions, rf, configs, s.Name)
	if err != nil {
		return false, fmt.Errorf("creating topic %s: %w", s.Name, err)
	}
	r := res[s.Name]
	switch {
	case r.Err == nil:
		return true, nil
	case errors.Is(r.Err, kerr.TopicAlreadyExists):
		return false, nil
	// Names are sanitised before they come here, so likeness is the one thing that can be wrong with them.
	case errors.Is(r.Err, kerr.InvalidTopicException):
		return false, fmt.Errorf("creating topic %s: %w: %w", s.Name, ErrTopicNameTaken, r.Err)
	}
	return false, topicError(s.Name, "creating the topic", r.Err, r.ErrMessage)
}

// TopicError is a topic that could not be made or asked for.
type TopicError struct {
	Topic string
	Doing string
	Err   error
	Hint  string
}

func (e *TopicError) Error() string {
	s := fmt.Sprintf("topic %s: %s: %v", e.Topic, e.Doing, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *TopicError) Unwrap() error { return e.Err }

// Retryable reports whether trying again unchanged may work.
func (e *TopicError) Retryable() bool { return retryable(e.Err) }

// topicError takes the broker's own message for the hint where there is no better one.
func topicError(topic, doing string, err error, message string) error {
	e := &TopicError{topic, doing, err, message}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		e.Hint = "allow this user Describe, DescribeConfigs, Create, Read and Write on it, or make it beforehand: docs/TOPICS.md"
	case errors.Is(err, kerr.InvalidReplicationFactor):
		e.Hint = "there are fewer brokers than kafka.replication asks for"
	}
	return e
}

func topicConfigs(ctx context.Context, adm *kadm.Client, names ...string) (map[string]map[string]string, error) {
	res, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("asking for topic settings: %w", err)
	}
	all := make(map[string]map[string]string, len(res))
	for _, r := range res {
		if errors.Is(r.Err, kerr.UnknownTopicOrPartition) { // made a moment ago; this broker does not know it yet
			continue
		}
		if r.Err != nil {
			return nil, topicError(r.Name, "asking for its settings", r.Err, r.ErrMessage)
		}
		c := make(map[string]string, len(r.Configs))
		for _, kv := range r.Configs {
			c[kv.Key] = kv.MaybeValue()
		}
		all[r.Name] = c
	}
	return all, nil
}

func compareTopics(ctx context.Context, adm *kadm.Client, specs []TopicSpec) ([]Finding, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	there, err := topicsThere(ctx, adm, specs)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	configs, err := topicConfigs(ctx, adm, names...)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, s := range specs {
		t, ok := there.topics[s.Name]
		if !ok { // removed a moment ago
			continue
		}
		all = append(all, compareTopic(s, t, there.brokers, configs[s.Name])...)
	}
	return all, nil
}

func compareTopic(s TopicSpec, t kadm.TopicDetail, brokers int, have map[string]string) []Finding {
	var all []Finding
	add := func(sev cdc.Severity, hint, what string, args ...any) {
		all = append(all, Finding{sev, s.Name, fmt.Sprintf(what, args...), hint})
	}
	if n := int32(len(t.Partitions)); n != s.Partitions && n > 0 {
		add(cdc.SeverityWarning, "", "has %d partitions, asked for are %d", n, s.Partitions)
	}
	replicas := int16(t.Partitions.NumReplicas())
	rf := s.Replication
	if rf == 0 {
		rf = int16(min(defaultReplication, brokers))
	}
	if replicas > 0 && replicas < rf {
		add(cdc.SeverityWarning, "reassign its partitions", "has %d replicas, asked for are %d", replicas, rf)
	}
	want := s.configs(max(replicas, 1))
	for _, k := range slices.Sorted(maps.Keys(want)) {
		v, ok := have[k]
		if !ok || v == "" || fits(k, v, want[k]) { // some hosted brokers show only part of the settings
			continue
		}
		sev := cdc.SeverityWarning
		why := ""
		if k == "cleanup.policy" {
			sev, why = cdc.SeverityError, cleanupWhy[s.Cleanup]
		}
		add(sev, fmt.Sprintf("kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s", s.Name, k, want[k]),
			"%s is %s, not %s%s", k, v, want[k], why)
	}
	return all
}

var cleanupWhy = map[Cleanup]string{
	Delete:  ": compaction removes changes that nobody has read yet, and before images with them",
	Compact: ": positions and partition states would expire",
}

// fits reports whether an existing value does what the wanted one is for: more is enough where less is the danger.
func fits(key, have, want string) bool {
	h, herr := strconv.ParseInt(have, 10, 64)
	w, werr := strconv.ParseInt(want, 10, 64)
	numbers := herr == nil && werr == nil
	switch key {
	case "retention.ms":
		return numbers && (h < 0 || h >= w)
	case "min.insync.replicas", "max.message.bytes":
		return numbers && h >= w
	case "segment.bytes", "segment.ms", "min.cleanable.dirty.ratio":
		return true // how fast a start is, not what is kept
	}
	return strings.EqualFold(have, want)
}
