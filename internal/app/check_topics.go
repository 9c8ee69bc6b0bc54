package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
)

// SeenTopic is a topic of a source that somebody else feeds, as its newest records show it. Its form as JSON is stable.
type SeenTopic struct {
	Source string      `json:"source"`
	Topic  string      `json:"topic"`
	Tables []SeenTable `json:"tables"` // sorted; empty where no record is a row's change
}

// SeenTable is a table whose changes a topic holds.
type SeenTable struct {
	Table string   `json:"table"`
	Types bool     `json:"types"` // each of the records names its columns' types
	Key   []string `json:"key"`   // the record key's fields; empty where none has any
}

// String reads shop.users (no types, key id).
func (t SeenTable) String() string {
	types := "types"
	if !t.Types {
		types = "no types"
	}
	key := "no key"
	if len(t.Key) > 0 {
		key = "key " + strings.Join(t.Key, ", ")
	}
	return fmt.Sprintf("%s (%s, %s)", t.Table, types, key)
}

// Shows says what the topic holds, for people.
func (t SeenTopic) Shows() string {
	if len(t.Tables) == 0 {
		return "no change of a row among its newest records"
	}
	all := make([]string, len(t.Tables))
	for i, table := range t.Tables {
		all[i] = table.String()
	}
	return strings.Join(all, ", ")
}

// newestRecords is how many records of a partition are looked at: enough for every table of a topic that many share, and one
// fetch for rows of an ordinary size.
const newestRecords = 200

// seenSource gathers what the topics of one source show.
type seenSource struct {
	*pipeline.Source
	decoder     *envelope.Decoder
	format      envelope.Format
	registry    bool
	snapshots   bool   // their rows count as changes
	unavailable string // the placeholder that is configured
	topics      map[string]map[cdc.TableID]*mapping.LiveTable
	old         map[cdc.TableID]time.Time // when the record was appended by which LiveTable.NoOld is set
	samples     map[string]*sample        // by topic
	down        error                     // the schemas could not be asked for
}

func (s *seenSource) sample(topic string) *sample {
	if s.samples[topic] == nil {
		s.samples[topic] = &sample{ignored: map[string]int{}}
	}
	return s.samples[topic]
}

// seeTopics reads the newest records of every topic that somebody else feeds, and returns by source what they show. What could not
// be seen is a finding; such a source is not in the map. Of tables that set maps the values are looked at too.
func seeTopics(ctx context.Context, c *config.Config, set *mapping.Set, log *slog.Logger) (map[string]*mapping.LiveTopics, []SeenTopic, []Finding) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	sources, where, err := seenSources(c, set)
	if err != nil {
		return nil, nil, failed("sources", err)
	}
	if len(sources) == 0 {
		return nil, nil, nil
	}
	if len(c.Kafka.Brokers) == 0 {
		return nil, nil, []Finding{{string(cdc.SeverityWarning), where, "its topics were not looked at, for no broker is named (set kafka.brokers)"}}
	}
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, nil, failed(where, err)
	}
	topics, denied, err := changelog.ReadNewest(ctx, o, func(topic string) bool { return sourceOf(sources, topic) != nil }, newestRecords,
		func(topic string, r changelog.TopicRecord) error {
			sourceOf(sources, topic).see(ctx, topic, r)
			return nil
		})
	if err != nil {
		return nil, nil, failed(where, fmt.Errorf("its topics could not be looked at, so that which tables they hold is not known: %w", err))
	}
	live, list, findings := seen(sources, topics, denied, c.Kafka)
	return live, list, findings
}

// seenSources are the sources that somebody else feeds, and a finding's word for them.
func seenSources(c *config.Config, set *mapping.Set) (sources []*seenSource, where string, err error) {
	if len(c.Sources) == 0 {
		return nil, "", nil
	}
	all, _, err := topicsOf(c)
	if err != nil {
		return nil, "", err
	}
	var names []string
	for i, s := range c.Sources {
		if s.Topics == nil {
			continue
		}
		decode := all[i].Decode
		none := cdc.NewColumns(nil)
		snapshots := decode.Snapshots
		decode.Snapshots = true
		decode.Select = func(_ string, t cdc.TableID) *cdc.Columns {
			if cols := set.Columns(s.Name, t); cols != nil {
				return cols
			}
			return none
		}
		d, err := envelope.NewDecoder(decode)
		if err != nil {
			return nil, "", fmt.Errorf("source %s: %w", s.Name, err)
		}
		names = append(names, "source "+s.Name)
		sources = append(sources, &seenSource{Source: all[i], decoder: d, format: cmp.Or(decode.Format, envelope.Auto),
			registry: decode.Schemas != nil, snapshots: snapshots, unavailable: decode.Unavailable,
			topics: map[string]map[cdc.TableID]*mapping.LiveTable{}, old: map[cdc.TableID]time.Time{}, samples: map[string]*sample{}})
	}
	return sources, strings.Join(names, ", "), nil
}

func sourceOf(sources []*seenSource, topic string) *seenSource {
	for _, s := range sources {
		if s.Pattern.MatchString(topic) {
			return s
		}
	}
	return nil
}

// see takes in one record.
func (s *seenSource) see(ctx context.Context, topic string, r changelog.TopicRecord) {
	if s.down != nil {
		return
	}
	change, ignored, err := s.decoder.DecodeContext(ctx, envelope.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
	if de := (*envelope.DecodeError)(nil); errors.As(err, &de) && de.Retryable() {
		s.down = err
		return
	}
	sample := s.sample(topic)
	if err != nil {
		if sample.broken == nil {
			sample.broken = fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err)
		}
		if what, hint := unread(s, r, err); what != "" {
			if sample.others++; sample.unread == "" {
				sample.unread, sample.mend = fmt.Sprintf("%s (partition %d, offset %d)", what, r.Partition, r.Offset), hint
			}
		}
		return
	}
	sample.look(s, r, change, ignored)
	if change == nil || change.Table == "" || change.Op == cdc.Tomb || change.Op == cdc.Truncate { // which show no row
		return
	}
	tables := s.topics[topic]
	if tables == nil {
		tables = map[cdc.TableID]*mapping.LiveTable{}
		s.topics[topic] = tables
	}
	t := tables[change.TableID]
	if t == nil {
		t = &mapping.LiveTable{TableID: change.TableID, Typed: true}
		tables[change.TableID] = t
	}
	t.Typed = t.Typed && s.format != envelope.Maxwell && namesTypes(r.Value)
	if len(change.KeyColumns) > 0 {
		t.Key = slices.Clone(change.KeyColumns)
	}
	s.oldRow(t, s.old, r, change)
}

// namesTypes reports whether a record that was decoded says what its columns' types are: by a schema around it, by our own
// marker, or as Avro, which is no JSON.
func namesTypes(value []byte) bool {
	var v struct{ Schema, Payload, Source json.RawMessage }
	if json.Unmarshal(value, &v) != nil {
		return true
	}
	var source struct{ Invalidator json.RawMessage }
	if json.Unmarshal(v.Source, &source) == nil && len(source.Invalidator) > 0 {
		return true
	}
	return len(v.Payload) > 0 && bytes.HasPrefix(v.Schema, []byte("{"))
}

// seen sums up what was read.
func seen(sources []*seenSource, topics, denied []string, kafka config.Kafka) (map[string]*mapping.LiveTopics, []SeenTopic, []Finding) {
	live := map[string]*mapping.LiveTopics{}
	var list []SeenTopic
	var findings []Finding
	for _, s := range sources {
		where := "source " + s.Name
		if s.down != nil {
			findings = append(findings, failed(where, fmt.Errorf("its records could not be read, so that which tables they are of is not known: %w", s.down))...)
			continue
		}
		l := &mapping.LiveTopics{Asked: true}
		for _, topic := range denied {
			if sourceOf(sources, topic) != s {
				continue
			}
			l.Count, l.Asked = l.Count+1, false // which tables it does not hold is not known
			findings = append(findings, Finding{string(cdc.SeverityError), where + ", topic " + topic,
				hinted("our user may not read it: none of its changes is seen", changelog.GrantRead(kafkaUser(kafka), topic))})
		}
		for _, topic := range topics {
			if sourceOf(sources, topic) != s {
				continue
			}
			l.Count++
			findings = append(findings, s.sample(topic).findings(s, where+", topic "+topic)...)
			st := SeenTopic{Source: s.Name, Topic: topic, Tables: []SeenTable{}}
			for _, t := range slices.SortedFunc(maps.Values(s.topics[topic]), func(a, b *mapping.LiveTable) int {
				return strings.Compare(a.TableID.String(), b.TableID.String())
			}) {
				l.Tables = append(l.Tables, *t)
				st.Tables = append(st.Tables, SeenTable{t.TableID.String(), t.Typed, append([]string{}, t.Key...)})
			}
			list = append(list, st)
		}
		if l.Count == 0 {
			hint := "topics.pattern is for whole names"
			if kafka.SASL != nil || kafka.TLS != nil && kafka.TLS.Cert != "" {
				hint += ", and the brokers hide what our user may not Describe"
			}
			findings = append(findings, Finding{string(cdc.SeverityWarning), where, hinted(fmt.Sprintf("no topic matches %s yet", s.Pattern), hint)})
		}
		if l.Count > 0 {
			findings = append(findings, s.notes(where)...)
		}
		live[s.Name] = l
	}
	return live, list, findings
}
