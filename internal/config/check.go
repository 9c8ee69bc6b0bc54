package config

import (
	"fmt"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// Defaults, each also stated in invalidator.example.yaml.
const (
	DefaultGroup       = "invalidator"
	DefaultPartitions  = 8
	DefaultMaxTTL      = 24 * time.Hour
	DefaultSettle      = time.Second
	DefaultRingLag     = time.Minute
	DefaultConnections = 2
	DefaultQueue       = 8 << 20
	DefaultTimeout     = time.Second
	DefaultMaxLag      = 2 * time.Second
	DefaultMaxRecord   = 1000 << 10
	DefaultWindow      = 30 * time.Second
	DefaultStormRows   = 10_000
	DefaultStormPace   = 5_000
	DefaultFlushPace   = 10_000
	DefaultFlushRefill = 10 * time.Second
)

func (c *Config) setDefaults(dir string) {
	def(&c.Kafka.Group, DefaultGroup)
	def(&c.Kafka.TopicPrefix, "invalidator")
	def(&c.Kafka.Partitions, DefaultPartitions)
	def(&c.Cache.MaxTTL, DefaultMaxTTL)
	def(&c.Cache.Settle, DefaultSettle)
	def(&c.Cache.Ring.Lag, DefaultRingLag)
	def(&c.Cache.Protocol, "meta")
	def(&c.Cache.Node.Connections, DefaultConnections)
	def(&c.Cache.Node.Queue, DefaultQueue)
	def(&c.Cache.Node.Timeout, DefaultTimeout)
	def(&c.Cache.Node.MaxLag, DefaultMaxLag)
	def(&c.Cache.Node.NotFound, "success")
	if e := c.Cache.Ring.Etcd; e != nil {
		def(&e.Key, "/cache/ring")
		def(&e.HotPrefix, "/cache/hot/")
		def(&e.OwedPrefix, path.Join(path.Dir(e.Key), "owed")+"/")
	}
	def(&c.Mappings.Dir, "mappings.d")
	def(&c.Replay.Window, DefaultWindow)
	def(&c.Replay.Flush.Pace, DefaultFlushPace)
	def(&c.Replay.Flush.Refill, DefaultFlushRefill)
	if c.Storm.Rows == nil {
		rows := DefaultStormRows
		c.Storm.Rows = &rows
	}
	def(&c.Storm.Pace, DefaultStormPace)
	for i := range c.Sources {
		s := &c.Sources[i]
		def(&s.TopicPrefix, s.Name)
		def(&s.MaxRecord, DefaultMaxRecord)
		def(&s.OnGap, "stop")
		s.MaxTTL, s.Settle = c.Cache.MaxTTL, c.Cache.Settle
		if s.Type == "postgres" {
			def(&s.Publication, "invalidator")
			def(&s.Slot, "invalidator_"+strings.ToLower(strings.ReplaceAll(s.Name, "-", "_")))
		}
		if s.Topics != nil {
			def(&s.Topics.Format, string(envelope.Auto))
			def(&s.Topics.Binary, string(envelope.Base64))
		} else {
			def(&s.FirstStart, "earliest")
		}
	}
	for _, p := range []*string{&c.Mappings.Dir, &c.Cache.Ring.File, &c.Cache.Ring.HotFile} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

var (
	sourceName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	topicPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`) // what Kafka takes, with room for schema and table
	instanceID  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`) // what Kafka takes
	slotName    = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)       // what Postgres takes
)

// maxCount is more partitions, replicas or connections than anybody has, and what Kafka's protocol can say.
const maxCount = 1<<15 - 1

// problems lists what is wrong in the file itself, in the order of the file.
func (c *Config) problems(file string, root *yaml.Node) []string {
	var out []string
	add := func(path, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s:%d: %s", file, line(root, strings.Split(path, ".")), fmt.Sprintf(format, args...)))
	}
	for _, b := range c.Kafka.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			add("kafka.brokers", "broker %q is not host:port", b)
		}
	}
	if !topicPrefix.MatchString(c.Kafka.TopicPrefix) {
		add("kafka.topic_prefix", "topic_prefix %q (use letters, digits, '.', '_' and '-', at most 100)", c.Kafka.TopicPrefix)
	}
	if id := c.Kafka.InstanceID; id != "" && !instanceID.MatchString(id) {
		add("kafka.instance_id", "instance_id %q (use letters, digits, '.', '_' and '-', at most 249)", id)
	}
	for _, n := range []struct {
		path  string
		value int
	}{{"kafka.partitions", c.Kafka.Partitions}, {"kafka.replication", c.Kafka.Replication}, {"cache.node.connections", c.Cache.Node.Connections}} {
		if n.value < 0 || n.value > maxCount {
			add(n.path, "%s is %d (use 1 to %d, or leave it out)", n.path[strings.LastIndexByte(n.path, '.')+1:], n.value, maxCount)
		}
	}
	for _, n := range []struct {
		path  string
		value int
	}{{"storm.rows", *c.Storm.Rows}, {"storm.rate", c.Storm.Rate}, {"storm.pace", c.Storm.Pace}, {"replay.flush.pace", c.Replay.Flush.Pace}} {
		if n.value < 0 {
			add(n.path, "%s is %d (it must not be below zero)", n.path, n.value)
		}
	}
	if s := c.Kafka.SASL; s != nil && !slices.Contains([]string{"plain", "scram-sha-256", "scram-sha-512", "oauthbearer"}, s.Mechanism) {
		add("kafka.sasl", "mechanism %q is not known (plain, scram-sha-256, scram-sha-512, oauthbearer)", s.Mechanism)
	}
	if r := c.Cache.Ring; r.File != "" && r.Etcd != nil {
		add("cache.ring", "a ring has one home: file or etcd, not both")
	} else if r.Etcd != nil && len(r.Etcd.Endpoints) == 0 {
		add("cache.ring", "etcd has no endpoints")
	} else if e := r.Etcd; e != nil {
		for _, other := range []string{e.Key, e.HotPrefix} {
			if strings.HasPrefix(other, e.OwedPrefix) || strings.HasPrefix(e.OwedPrefix, other) {
				add("cache.ring.etcd", "owed_prefix %q and %q overlap (each begins keys of its own)", e.OwedPrefix, other)
			}
		}
	}
	if p := c.Cache.Protocol; p != "meta" && p != "classic" {
		add("cache.protocol", "protocol %q is not known (meta, classic)", p)
	}
	switch n := c.Cache.Node; {
	case n.NotFound != "success" && n.NotFound != "verify":
		add("cache.node", "not_found %q is not known (success, verify)", n.NotFound)
	case n.NotFound == "verify" && c.Cache.Protocol != "classic":
		add("cache.node", "not_found: verify is for proxies, with protocol: classic")
	case (n.User == "") != (n.Password.Reveal() == ""):
		add("cache.node", "user and password are set together")
	}
	for _, d := range []struct {
		path  string
		value time.Duration
	}{{"cache.max_ttl", c.Cache.MaxTTL}, {"cache.settle", c.Cache.Settle}, {"cache.ring.lag", c.Cache.Ring.Lag}, {"cache.node", c.Cache.Node.Timeout}, {"cache.node", c.Cache.Node.MaxLag}, {"replay.window", c.Replay.Window}, {"replay.flush.refill", c.Replay.Flush.Refill}} {
		if d.value < 0 {
			add(d.path, "a duration of %s is negative", d.value)
		}
	}
	if f := c.Replay.Flush; f.Refill%time.Second != 0 {
		add("replay.flush.refill", "refill is %s (whole seconds, such as 10s)", f.Refill)
	}
	if p := c.Replay.Flush.Prometheus; p != "" && !p.http() {
		add("replay.flush.prometheus", "prometheus %q is no URL (write http://host:9090)", p)
	}
	switch a := c.Admin; {
	case a.Token.Reveal() != "" && a.Listen == "":
		add("admin", "token is set and listen is not (nobody would listen)")
	case a.ReadToken.Reveal() != "" && a.Listen == "":
		add("admin", "read_token is set and listen is not (nobody would listen)")
	case a.TLS != nil && (a.TLS.Cert == "" || a.TLS.Key == ""):
		add("admin.tls", "cert and key are both needed")
	case a.Remote && a.Token.Reveal() == "":
		add("admin", "remote is set and token is not (without a token no request is taken)")
	}
	seen := map[string]bool{}
	for i := range c.Sources {
		s := &c.Sources[i]
		at := fmt.Sprintf("sources.%d", i)
		if !sourceName.MatchString(s.Name) {
			add(at, "source name %q (use letters, digits, - and _)", s.Name)
		}
		if seen[s.Name] {
			add(at, "source %q stands here twice", s.Name)
		}
		seen[s.Name] = true
		s.problems(func(format string, args ...any) {
			add(at, "source %s: %s", s.Name, fmt.Sprintf(format, args...))
		})
	}
	return out
}

func (s *Source) problems(add func(format string, args ...any)) {
	if s.FirstStart != "latest" && s.FirstStart != "earliest" {
		if _, err := time.Parse(time.RFC3339, s.FirstStart); err != nil {
			add("first_start %q (must be latest, earliest or a time like 2026-11-30T10:00:00Z)", s.FirstStart)
		}
	}
	if s.OnGap != "stop" && s.OnGap != "flush" {
		add("on_gap %q is not known (stop, flush)", s.OnGap)
	}
	if s.Topics != nil {
		if s.Type != "" {
			add("has both type and topics (a source is fed by us or by somebody else)")
		}
		s.Topics.problems(add)
		return
	}
	if !topicPrefix.MatchString(s.TopicPrefix) {
		add("topic_prefix %q (use letters, digits, '.', '_' and '-', at most 100)", s.TopicPrefix)
	}
	if s.Type == "postgres" && !slotName.MatchString(s.Slot) {
		add("slot %q (use lower-case letters, digits and _, at most 63)", s.Slot)
	}
	if s.Type != "mysql" && s.Type != "postgres" {
		add("type %q is not known (mysql, which MariaDB is too, or postgres)", s.Type)
	}
	if len(s.Hosts) == 0 {
		add("hosts is empty (host:port)")
	}
	for _, h := range s.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			add("host %q is not host:port", h)
		}
	}
	if s.User == "" {
		add("user is empty")
	}
	if len(s.Include) == 0 {
		add("include is empty (schema.table patterns, such as shop.*)")
	}
	if s.Heartbeat < 0 {
		add("heartbeat is %s (use a duration such as 10s, or leave it out)", s.Heartbeat)
	}
	if s.Type == "postgres" && s.Database == "" {
		add("database is empty (a slot reads one database)")
	}
}

func (t *Topics) problems(add func(format string, args ...any)) {
	if _, err := regexp.Compile(t.Pattern); err != nil || t.Pattern == "" {
		add("topics.pattern %q is not a regular expression: %v", t.Pattern, err)
	}
	format := envelope.Format(t.Format)
	if !slices.Contains([]envelope.Format{envelope.Auto, envelope.Avro, envelope.Maxwell, envelope.Unwrapped}, format) {
		add("topics.format %q is not known (%s, %s, %s, %s)", t.Format, envelope.Auto, envelope.Avro, envelope.Maxwell, envelope.Unwrapped)
	}
	switch r := t.Registry; {
	case r == nil && format == envelope.Avro:
		add("topics.registry is missing: Avro needs its schemas")
	case r != nil && format != envelope.Avro && format != envelope.Unwrapped:
		add("topics.registry is for the formats %s and %s", envelope.Avro, envelope.Unwrapped)
	case r != nil:
		if !r.URL.http() {
			add("topics.registry.url %q is not http://host:port or https://host:port", r.URL)
		}
	}
	if b := envelope.Binary(t.Binary); !slices.Contains([]envelope.Binary{envelope.Base64, envelope.Base64URL, envelope.Hex}, b) {
		add("topics.binary %q is not known (%s, %s, %s)", t.Binary, envelope.Base64, envelope.Base64URL, envelope.Hex)
	} else if format == envelope.Maxwell && b != envelope.Base64 {
		add("topics.binary is Debezium's; Maxwell always writes base64")
	}
	if t.Table != "" {
		if schema, table, ok := strings.Cut(t.Table, "."); !ok || schema == "" || table == "" {
			add("topics.table %q is not schema.table", t.Table)
		}
	}
	if !slices.Contains([]cdc.Connector{"", cdc.MySQL, cdc.MariaDB, cdc.Postgres}, cdc.Connector(t.Connector)) {
		add("topics.connector %q is not known (%s, %s, %s)", t.Connector, cdc.MySQL, cdc.MariaDB, cdc.Postgres)
	}
	if format == envelope.Maxwell && t.Unavailable != "" {
		add("topics.unavailable is Debezium's; Maxwell writes no placeholder")
	}
	if format != envelope.Unwrapped && (t.Table != "" || t.Connector != "") {
		add("topics.table and topics.connector are for format unwrapped; other records say it themselves")
	}
}

// line finds where a path like sources.1 stands; the nearest parent that is there otherwise.
func line(n *yaml.Node, path []string) int {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return line(n.Content[0], path)
	}
	if len(path) == 0 {
		return n.Line
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == path[0] {
				if len(path) == 1 {
					return n.Content[i].Line
				}
				return line(n.Content[i+1], path[1:])
			}
		}
	case yaml.SequenceNode:
		var i int
		if _, err := fmt.Sscan(path[0], &i); err == nil && i < len(n.Content) {
			return line(n.Content[i], path[1:])
		}
	}
	return n.Line
}
