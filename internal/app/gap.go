package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/mapping"
	"invalidator/replay"
)

// onGapFlush is the word of a source's on_gap under which a gap accepts itself.
const onGapFlush = "flush"

// gapRecorder writes a worker's gaps down, where they stand until somebody answers them, or answers them as on_gap says.
type gapRecorder struct {
	book     *gap.Book
	config   *config.Config
	mappings *mappings
}

// Record implements pipeline.GapRecorder. The same gap met twice is one record.
func (g gapRecorder) Record(ctx context.Context, source string, l changelog.Loss) error {
	record := gap.Gap{
		ID: gap.WorkerID(l.Topic, l.Number, l.To), Source: source, Why: l.Why,
		Range: &replay.Range{Topic: l.Topic, Partition: l.Number, From: l.From, To: l.To},
	}
	onGap := g.concern(&record, l.Topic)
	c, err := g.book.Record(ctx, record, false)
	if err != nil || onGap != onGapFlush {
		return err
	}
	return g.book.Settle(ctx, c, gap.OnGap, true)
}

// concern fills in the tables and pools of which a topic of the gap's source may have rows, and returns the source's on_gap.
func (g gapRecorder) concern(record *gap.Gap, topic string) (onGap string) {
	for _, s := range g.config.Sources {
		if s.Name == record.Source {
			record.Tables = topicTables(s, topic)
			record.Pools = poolsOf(g.mappings.today().set, s, record.Tables)
			onGap = s.OnGap
		}
	}
	if topic == changelog.NamesFor(g.config.Kafka.TopicPrefix).Keys { // any key may have stood there
		record.Pools = allPools(g.mappings.today().set)
	}
	return onGap
}

// settleEvery is how often a worker looks for gaps that somebody accepted and did not finish. It reads the state topic whole.
const settleEvery = 5 * time.Minute

// settleGaps finishes, until ctx ends, what somebody accepted and died before it was done: the flush is asked for. Every worker
// looks, each at moments of its own, so that mostly one finds something.
func settleGaps(ctx context.Context, book *gap.Book, log *slog.Logger) {
	wait := rand.N(settleEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = settleEvery/2 + rand.N(settleEvery)
		limit, cancel := context.WithTimeout(ctx, gapsTimeout)
		done, err := book.SettleLate(limit)
		cancel()
		for _, c := range done {
			log.Warn("a gap that was accepted and not finished is closed", "gap", c.ID, "accepted_by", c.Acceptance.By, "flush", c.Acceptance.Flush, "pools", c.Pools)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("finishing gaps that were accepted: it is tried again", "error", err)
		}
	}
}

// topicTables are the tables whose changes lie on a topic, where its name says that for certain; none: any of the source.
func topicTables(s config.Source, topic string) []string {
	if s.Topics != nil {
		// A record's table stands in the record: a router may have chosen the topic. Only what is configured binds it.
		if schema, table, ok := strings.Cut(s.Topics.Table, "."); ok {
			return []string{schema + "." + table}
		}
		return nil
	}
	name, ok := strings.CutPrefix(topic, s.TopicPrefix+".")
	schema, table, dotted := strings.Cut(name, ".")
	// Bytes that Kafka refuses were written as _x, and long names cut: several tables may be meant.
	if !ok || !dotted || strings.Contains(name, "_x") || strings.Contains(name, "-") || changelog.ChangeTopic(s.TopicPrefix, schema, table) != topic ||
		len(topic) >= longTopic {
		return nil
	}
	return []string{name}
}

// longTopic is where the name of a change topic may be a cut one.
const longTopic = 249

// poolsOf are the pools to be flushed where changes of tables ("schema.table" or "schema.*"; none: any of the source) are
// lost. Where any may be, logical messages may be among them, and with them keys that no row gives.
func poolsOf(set *mapping.Set, s config.Source, tables []string) []string {
	if len(tables) > 0 {
		return set.Pools(s.Name, tables)
	}
	all := s.Include
	if s.Topics != nil {
		all = []string{"*"}
	}
	pools := set.Pools(s.Name, all)
	if s.Type == "postgres" || s.Topics != nil {
		pools = append(pools, set.Underivable()...)
	}
	return pools
}

// schemaTables lists the tables of a schema that a source includes: those that the catalogue has, and those that mappings
// name, which may have been dropped.
func schemaTables(ctx context.Context, s config.Source, set *mapping.Set, f cdc.Feeder, schema string) ([]cdc.TableID, error) {
	include, err := cdc.NewInclude(s.Include)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", s.Name, err)
	}
	seen := map[string]bool{}
	var all []cdc.TableID
	add := func(t cdc.TableID) {
		if t.Schema == schema && include.Match(t.Schema, t.Table) && !seen[t.Table] {
			seen[t.Table] = true
			all = append(all, t)
		}
	}
	if d, ok := f.(cdc.Describer); ok {
		there, err := d.Describe(ctx, include)
		if err != nil {
			return nil, err
		}
		for _, t := range there {
			add(t.TableID)
		}
	}
	for _, table := range set.TablesIn(s.Name, schema) {
		t := cdc.TableID{Schema: schema, Table: table}
		if s.Type == "postgres" {
			t.Database = s.Database
		}
		add(t)
	}
	return all, nil
}

// gapsTimeout bounds what a person waits for at a terminal.
const gapsTimeout = 20 * time.Second

// Gaps opens the book of gaps for a person, and loads it. It needs Kafka alone.
func Gaps(ctx context.Context, c *config.Config, by string, log *slog.Logger) (*gap.Book, []*gap.Case, error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	kafka, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, nil, err
	}
	cl, err := kafka.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	cl.Close()
	book, err := gap.OpenBook(kafka, changelog.NamesFor(c.Kafka.TopicPrefix), by)
	if err != nil {
		return nil, nil, err
	}
	all, err := book.Load(ctx)
	var bad *changelog.RecordError
	switch {
	case errors.As(err, &bad):
		log.Error("gaps that cannot be read are left out", "error", err)
	case err != nil:
		book.Close()
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("%w (feed and run make it when they start; is kafka.topic_prefix right?)", err)
		}
		return nil, nil, err
	}
	return book, all, nil
}
