package changelog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DefaultPrefix begins the names of the service's own topics, with a dot after it.
const DefaultPrefix = "invalidator"

// Names are the service's own topics of one fleet.
type Names struct{ Control, Status, State, Work, DeadLetter, Keys, Refresh, Leader string }

// NamesFor returns the names under prefix; empty means DefaultPrefix.
func NamesFor(prefix string) Names {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	prefix += "."
	return Names{
		Control:    prefix + "control",
		Status:     prefix + "status",
		State:      prefix + "state",
		Work:       prefix + "work",
		DeadLetter: prefix + "deadletter",
		Keys:       prefix + "keys",
		Refresh:    prefix + "refresh",
		Leader:     prefix + "leader",
	}
}

// All are the names of the service's own topics.
func (n Names) All() []string {
	return []string{n.Control, n.Status, n.State, n.Work, n.DeadLetter, n.Keys, n.Refresh, n.Leader}
}

// Partitions of the service's own topics. They never change: a state record's partition follows from its key, and a claim
// on work from hash(name) mod WorkPartitions.
const (
	ControlPartitions    = 1 // one order for all requests: the first record of an id wins
	StatusPartitions     = 1
	StatePartitions      = 8
	WorkPartitions       = 64
	DeadLetterPartitions = 8
	KeysPartitions       = 8
	RefreshPartitions    = 8
	LeaderPartitions     = 1 // a source's group is its own, so that one partition serves all
)

const (
	// RetentionMargin is what change topics keep beyond cache.max_ttl, so that a value filled just before a change at the
	// log's start has expired by the time the change leaves the log.
	RetentionMargin = time.Hour

	DefaultChangePartitions = 8
	DefaultMaxTTL           = 24 * time.Hour
	DefaultMaxMessageBytes  = 1 << 20 // as brokers have it, to within a few bytes

	// deadLetterRoom is added to a parked record's limit, for the headers that say where it came from and why.
	deadLetterRoom = 64 << 10

	defaultReplication = 3
	month              = 30 * 24 * time.Hour
	day                = 24 * time.Hour
)

// Settings are what an operator chooses about topics. The zero Settings are the defaults.
type Settings struct {
	Prefix          string        // of the service's own topics; default "invalidator"
	Partitions      int32         // of a change topic; default 8
	Replication     int16         // default the smaller of 3 and the number of brokers
	MaxTTL          time.Duration // cache.max_ttl; default 24 h. Change topics keep this and an hour
	MaxMessageBytes int           // max.message.bytes of change topics; default 1 MiB
}

func (s Settings) withDefaults() Settings {
	if s.Partitions == 0 {
		s.Partitions = DefaultChangePartitions
	}
	if s.MaxTTL == 0 {
		s.MaxTTL = DefaultMaxTTL
	}
	if s.MaxMessageBytes == 0 {
		s.MaxMessageBytes = DefaultMaxMessageBytes
	}
	return s
}

// Cleanup is a topic's cleanup.policy.
type Cleanup string

const (
	Delete  Cleanup = "delete"
	Compact Cleanup = "compact"
)

// TopicSpec is a topic as it should be.
type TopicSpec struct {
	Name            string
	Partitions      int32
	Replication     int16 // 0: the smaller of 3 and the number of brokers
	Cleanup         Cleanup
	Retention       time.Duration // Cleanup delete only
	MaxMessageBytes int           // 0: the broker's own
}

// Change is the spec of a change topic.
func (s Settings) Change(name string) TopicSpec {
	s = s.withDefaults()
	return TopicSpec{name, s.Partitions, s.Replication, Delete, s.MaxTTL + RetentionMargin, s.MaxMessageBytes}
}

// Own are the specs of the service's own topics.
func (s Settings) Own() []TopicSpec {
	s = s.withDefaults()
	n, rf := NamesFor(s.Prefix), s.Replication
	return []TopicSpec{
		{n.Control, ControlPartitions, rf, Delete, month, 0},
		{n.Status, StatusPartitions, rf, Delete, month, 0},
		{n.State, StatePartitions, rf, Compact, 0, 0},
		{n.Work, WorkPartitions, rf, Delete, day, 0},
		{n.DeadLetter, DeadLetterPartitions, rf, Delete, month, s.MaxMessageBytes + deadLetterRoom},
		{n.Keys, KeysPartitions, rf, Delete, s.MaxTTL + RetentionMargin, s.MaxMessageBytes},
		{n.Refresh, RefreshPartitions, rf, Delete, day, 0},
		{n.Leader, LeaderPartitions, rf, Delete, day, 0},
	}
}

// configs are the broker settings of the topic where it has replicas copies.
func (t TopicSpec) configs(replicas int16) map[string]string {
	c := map[string]string{
		"cleanup.policy":         string(t.Cleanup),
		"message.timestamp.type": "LogAppendTime", // a producer's clock may be wrong, and windows are found by time
	}
	if t.Cleanup == Delete {
		c["retention.ms"] = strconv.FormatInt(t.Retention.Milliseconds(), 10)
		c["retention.bytes"] = "-1" // retention is a promise in time: no size may cut it short
	} else {
		// A start reads the whole topic. Small segments and an eager cleaner keep it near one record a key; the segment
		// being written is never compacted.
		c["segment.bytes"] = strconv.Itoa(32 << 20)
		c["segment.ms"] = strconv.FormatInt(time.Hour.Milliseconds(), 10)
		c["min.cleanable.dirty.ratio"] = "0.1"
	}
	if replicas > 1 {
		c["min.insync.replicas"] = "2"
		c["unclean.leader.election.enable"] = "false"
	}
	if t.MaxMessageBytes > 0 {
		c["max.message.bytes"] = strconv.Itoa(t.MaxMessageBytes)
	}
	return c
}

const maxTopicName = 249 // Kafka's own limit, in bytes

// ChangeTopic names the topic of a table: <prefix>.<schema>.<table>. A byte that Kafka refuses becomes _xHH (hex), and a
// name over 249 bytes ends in a hash of the whole, after an underscore. Two tables may so come to share a topic (`a b`
// and `a_x20b`), which is harmless: readers take the table from the record's source, never from the topic's name.
func ChangeTopic(prefix, schema, table string) string {
	return shorten(sanitise(prefix + "." + schema + "." + table))
}

// ChangeTopics matches the whole name of every topic that ChangeTopic and MessageTopic make under prefix, and no topic of the
// service's own.
func ChangeTopics(prefix string) *regexp.Regexp {
	p := regexp.QuoteMeta(sanitise(prefix))
	return regexp.MustCompile("^(?:" + p + `\..*\..*|` + p + `\..*_[0-9a-f]{16}|` + // the second is what shorten leaves
		p + `\.message(?:-[0-9a-f]{16})?)$`)
}

// MessageTopic names the topic of a source's logical messages, which belong to no table.
func MessageTopic(prefix string) string { return shorten(sanitise(prefix + ".message")) }

// alternative is the name for a topic whose own name Kafka refuses because it differs from another's only in '.' and '_'
// (shop.a_b and shop_a.b): its metrics would mix the two.
func alternative(name string) string {
	return shorten(name + "-" + digest(name))
}

func sanitise(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_x%02x", c)
		}
	}
	return b.String()
}

func shorten(name string) string {
	if len(name) <= maxTopicName {
		return name
	}
	d := digest(name)
	return name[:maxTopicName-1-len(d)] + "_" + d
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
