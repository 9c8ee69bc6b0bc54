//go:build bench

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	partitions = 4 // of each change topic, whoever writes it
	backlog    = 1_000_000
	huge       = 2_000_000 // rows of the transaction that memory is measured with
	commits    = 500       // that latency is measured with, after some that warm up
	warmUp     = 20
	turns      = 3 // of a feeder and the raw limit

	// readyRows are the records that are kept to be produced anew, again and again: a repetition is farther away than a batch
	// is long, so that it makes none of them smaller.
	readyRows = 100_000
)

// The goals of the feeders, as multiples of Debezium's rate on the same log and broker.
var debeziumGoal = map[harness.Kind]float64{harness.MySQL: 3, harness.Postgres: 2}

// TestFeed measures the feeders. It is no test: what it prints are the figures feed.*.
func TestFeed(t *testing.T) {
	var rss, p99 float64
	for i, kind := range harness.Kinds {
		b := newFeedBench(t, kind)
		if i == 0 {
			b.warmUp(t)
		}
		b.backlog(t)
		rss = max(rss, b.memory(t))
		p99 = max(p99, b.latency(t))
		b.db.Do(t, "DROP TABLE items")
	}
	report(t, atMost("feed.rss_mb", rss, "MB", 150))
	report(t, atMost("feed.idle_p99_ms", p99, "ms", 20))
}

type feedBench struct {
	kind  harness.Kind
	db    *harness.Database
	p     *harness.Pipeline
	adm   *kadm.Client
	kafka *kgo.Client
	topic string // of items
	rows  int    // in items
}

func newFeedBench(t *testing.T, kind harness.Kind) *feedBench {
	b := &feedBench{kind: kind, db: harness.NewDatabase(t, kind)}
	b.db.Do(t, "CREATE TABLE items (id bigint PRIMARY KEY, version int, note varchar(200))")
	b.p = harness.New(t, harness.Options{
		Databases: []*harness.Database{b.db},
		Mappings: map[string]string{"items.yaml": fmt.Sprintf(`
version: 1
team: items
pools: [item]
mappings:
  - {name: item, table: %s.items, keys: ["item:{id}"]}
`, b.db.Schema)},
		Record: sink.Record{Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: "127.0.0.1:1"}}}},
		Settle: time.Second,
	})
	var err error
	if b.kafka, err = kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kafka.Close)
	b.adm = kadm.NewClient(b.kafka)
	b.topic = b.p.Source(kind) + "." + b.db.Schema + ".items"
	return b
}

func (b *feedBench) name(figure string) string { return fmt.Sprintf("feed.%s.%s", b.kind, figure) }

// warmUp has the broker take as many records as it will: one that was just started is slower, and the first that is measured would pay for it.
func (b *feedBench) warmUp(t *testing.T) {
	n := size(t, backlog)
	records := make([]*kgo.Record, min(n, readyRows))
	for i := range records {
		records[i] = &kgo.Record{Key: fmt.Appendf(nil, `{"id":%d}`, i), Value: userChange(i, time.Now())}
	}
	produceReady(t, b.p, records, n)
}

// backlog is how fast a feeder catches up with a million rows that were committed while it was away, in transactions of a
// thousand: ours, what the driver and the broker allow, and Debezium (where there is a connector). Ours and the raw limit take turns, and the
// medians count: a database that has just taken a million rows, and a machine that others use too, are faster one minute than the next.
func (b *feedBench) backlog(t *testing.T) {
	n := size(t, backlog)
	feeder := b.p.Feed()
	b.p.AwaitFeeding(b.db)
	b.insert(t, 1, 1) // makes the topic
	b.p.AwaitFed(b.db)
	feeder.Terminate()
	var debezium *debezium
	if debeziumGoal[b.kind] > 0 {
		debezium = startDebezium(t, b)
	}
	all := map[string][]float64{}
	for range turns {
		for name, figure := range b.turn(t, n) {
			all[name] = append(all[name], figure)
		}
	}
	for _, f := range []struct{ name, unit string }{
		{"rows_per_s", "rows/s"}, {"cpu_us_per_row", "us"}, {"driver_rows_per_s", "rows/s"}, {"produce_rows_per_s", "rows/s"}, {"raw_cpu_us_per_row", "us"},
	} {
		report(t, plain(b.name(f.name), median(all[f.name]), f.unit))
	}
	report(t, atLeast(b.name("vs_raw"), median(all["vs_raw"]), "x", 0.7))
	if debezium != nil {
		theirs := b.rate(t, debezium.topic(b), turns*n, func() (stop func()) { return debezium.run(t) })
		report(t, plain(b.name("debezium_rows_per_s"), theirs, "rows/s"))
		report(t, atLeast(b.name("vs_debezium"), median(all["rows_per_s"])/theirs, "x", debeziumGoal[b.kind]))
	}
}

// turn adds n rows and has them read by our feeder, by the driver alone, and what our feeder wrote of them produced again.
func (b *feedBench) turn(t *testing.T, n int) map[string]float64 {
	raw := markLog(t, b.db)
	b.insert(t, n, 1000)
	var cpu time.Duration
	ours := b.rate(t, b.topic, n, func() (stop func()) {
		f := b.p.Feed()
		return func() {
			cpu = cpuOf(t, f.Pid())
			f.Terminate()
		}
	})
	self := os.Getpid()
	before := cpuOf(t, self)
	took := raw.read(t, n)
	rawCPU := cpuOf(t, self) - before
	ready := b.written(t, min(n, readyRows))
	before = cpuOf(t, self)
	produce := produceReady(t, b.p, ready, n)
	rawCPU += cpuOf(t, self) - before
	return map[string]float64{
		"rows_per_s":         ours,
		"cpu_us_per_row":     usPerRow(cpu, n),
		"driver_rows_per_s":  float64(n) / took.Seconds(),
		"produce_rows_per_s": float64(n) / produce.Seconds(),
		"raw_cpu_us_per_row": usPerRow(rawCPU, n),
		"vs_raw":             ours * (took + produce).Seconds() / float64(n),
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// insert adds n rows, per of them a transaction.
func (b *feedBench) insert(t *testing.T, n, per int) {
	t.Helper()
	for end := b.rows + n; b.rows < end; b.rows += per {
		b.db.Do(t, b.statement(b.rows, per))
	}
}

func (b *feedBench) statement(first, n int) string {
	numbers := fmt.Sprintf("WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT", n-1)
	if b.kind == harness.Postgres {
		return fmt.Sprintf("INSERT INTO items SELECT %d + i, 1, '%0100d' FROM generate_series(0, %d) AS i", first, 0, n-1)
	}
	return fmt.Sprintf("INSERT INTO items %s %d + i, 1, '%0100d' FROM n", numbers, first, 0)
}

// rate starts a feeder and says how many rows a second reach the topic, from the first that comes to the n-th: what a start
// takes is left out, for everyone.
func (b *feedBench) rate(t *testing.T, topic string, n int, start func() (stop func())) float64 {
	t.Helper()
	before := b.records(t, topic)
	var first, last int64
	var begin, end time.Time
	stop := start()
	harness.AwaitQuick(t, fmt.Sprintf("%d records on %s", n, topic), func() (bool, string) {
		last, end = b.records(t, topic)-before, time.Now()
		if first == 0 && last > 0 {
			first, begin = last, end
		}
		return last >= int64(n), fmt.Sprintf("%d of %d", last, n)
	})
	stop()
	if last == first {
		t.Fatalf("%d rows came at once: too few to measure", n)
	}
	return float64(last-first) / end.Sub(begin).Seconds()
}

func (b *feedBench) records(t *testing.T, topic string) (n int64) {
	t.Helper()
	ends, err := b.adm.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(e kadm.ListedOffset) { n += max(0, e.Offset) })
	return n
}

// written is the first n records that our feeder wrote of the backlog, in the order of the log, so that they compress as they did then and
// go to the partitions that they went to.
func (b *feedBench) written(t *testing.T, n int) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumeTopics(b.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	first := b.rows - size(t, backlog)
	out := make([]*kgo.Record, n)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for missing := n; missing > 0; {
		fetched := cl.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			t.Fatalf("reading topic %s, %d records missing: %v", b.topic, missing, err)
		}
		for _, r := range fetched.Records() {
			var id int
			if _, err := fmt.Sscanf(string(r.Key), `{"id":%d}`, &id); err != nil {
				t.Fatalf("the key %s: %v", r.Key, err)
			}
			if i := id - first; i >= 0 && i < n && out[i] == nil {
				out[i] = &kgo.Record{Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
				missing--
			}
		}
	}
	return out
}

// cpuOf is the time that a process has used, user and system together: /proc/pid/stat, see proc(5), in hundredths of a second.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third field on
	var sum time.Duration
	for _, f := range fields[14-3 : 16-3] {
		ticks, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ticks) * time.Second / 100
	}
	return sum
}

func usPerRow(cpu time.Duration, rows int) float64 {
	return float64(cpu.Microseconds()) / float64(rows)
}

// memory is the most resident memory of a feeder in MB, while it reads one transaction of two million rows.
func (b *feedBench) memory(t *testing.T) float64 {
	n := size(t, huge)
	feeder := b.p.Feed()
	b.p.AwaitFeeding(b.db)
	tx, err := b.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for done := 0; done < n; done += 1000 {
		if _, err := tx.Exec(b.statement(b.rows+done, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b.rows += n
	b.p.AwaitFed(b.db)
	mb := peak(t, feeder.Pid())
	feeder.Terminate()
	report(t, plain(b.name("rss_mb"), mb, "MB"))
	return mb
}

// peak is a process's VmHWM in MB: /proc/pid/status, see proc(5).
func peak(t *testing.T, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n / 1024
		}
	}
	t.Fatal("there is no VmHWM")
	return 0
}

// latency is the 99th percentile in ms from when the database said that a single row is committed to when a consumer has its
// record, one commit at a time.
func (b *feedBench) latency(t *testing.T) float64 {
	feeder := b.p.Feed()
	b.p.AwaitFeeding(b.db)
	b.p.AwaitFed(b.db)
	ends, err := b.adm.ListEndOffsets(t.Context(), b.topic)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumePartitions(ends.KOffsets()), kgo.FetchMaxWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var took []time.Duration
	for i := range warmUp + commits {
		b.insert(t, 1, 1)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		n := cl.PollFetches(ctx).NumRecords()
		for n == 0 && ctx.Err() == nil {
			n = cl.PollFetches(ctx).NumRecords()
		}
		cancel()
		if n != 1 {
			t.Fatalf("%d records of one commit", n)
		}
		if i >= warmUp {
			took = append(took, time.Since(begin))
		}
	}
	feeder.Terminate()
	slices.Sort(took)
	ms := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))].Microseconds()) / 1000
	}
	report(t, plain(b.name("idle_p50_ms"), ms(0.5), "ms"))
	report(t, plain(b.name("idle_p99_ms"), ms(0.99), "ms"))
	return ms(0.99)
}
