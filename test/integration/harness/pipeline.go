package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/sink"
	"invalidator/test/integration/services"
)

// Pipeline is a configuration over real services, under names of its own. Start feeders and workers on it.
type Pipeline struct {
	t      testing.TB
	ID     string
	Dir    string // of the files: mappings.d is in it
	File   string // the configuration
	Config *config.Config
	Kafka  string // host:port of its broker
	kafka  *kgo.Client
	adm    *kadm.Client
	etcd   *clientv3.Client
	epoch  int64
}

// Options are what a test chooses.
type Options struct {
	ID        string // of everything that is made; default: one that nobody uses
	Databases []*Database
	Mappings  map[string]string // file name -> YAML
	Record    sink.Record       // the first ring; its epoch is chosen here
	Settle    time.Duration
	Include   string // default: every table of the database
	Sources   string // more sources, as lines of YAML
	Kafka     string // host:port of another broker than ./dev's
	OnGap     string // of every source; default: as the configuration has it
}

// New writes the configuration, the mappings and the first ring record. Topics, group, etcd keys and databases are removed
// when the test ends.
func New(t testing.TB, o Options) *Pipeline {
	t.Helper()
	p := &Pipeline{t: t, ID: o.ID, Kafka: o.Kafka}
	if p.ID == "" {
		p.ID = Unique()
	}
	if p.Kafka == "" {
		p.Kafka = services.Addr("KAFKA")
	}
	dir := t.TempDir()
	p.Dir = dir
	if err := os.Mkdir(filepath.Join(dir, "mappings.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range o.Mappings {
		if err := os.WriteFile(filepath.Join(dir, "mappings.d", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.File = filepath.Join(dir, "invalidator.yaml")
	if err := os.WriteFile(p.File, []byte(p.yaml(o)), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.Config, err = config.Load(p.File); err != nil {
		t.Fatal(err)
	}
	p.connect()
	p.Publish(o.Record)
	return p
}

func (p *Pipeline) yaml(o Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka: {brokers: [%q], group: %s, topic_prefix: %s, partitions: 4}\n", p.Kafka, p.ID, p.ID+"-own")
	fmt.Fprintf(&b, "cache:\n  settle: %s\n  ring: {etcd: {endpoints: [%q], key: /%s/ring, hot_prefix: /%s/hot/}}\n", o.Settle, services.Addr("ETCD"), p.ID, p.ID)
	b.WriteString("mappings: {dir: mappings.d}\nsources:\n")
	for _, d := range o.Databases {
		kind, extra := "mysql", ""
		if d.Kind == Postgres {
			kind, extra = "postgres", fmt.Sprintf(", database: %s, slot: inv_%s", d.Name, d.Name)
		}
		if o.OnGap != "" {
			extra += ", on_gap: " + o.OnGap
		}
		include := o.Include
		if include == "" {
			include = "*"
		}
		fmt.Fprintf(&b, "  - {name: %s-%s, type: %s, hosts: [%q], user: cdc, password: cdc-password, include: [%q]%s}\n",
			p.ID, d.Kind, kind, d.Addr, d.Schema+"."+include, extra)
	}
	b.WriteString(o.Sources)
	return b.String()
}

// Variant writes the configuration a second time, each old text replaced by the new one that follows it, and returns the file.
func (p *Pipeline) Variant(name string, oldnew ...string) string {
	p.t.Helper()
	text, err := os.ReadFile(p.File)
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.Dir, name+".yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// Source is the name of a database's source.
func (p *Pipeline) Source(k Kind) string { return p.ID + "-" + string(k) }

func (p *Pipeline) connect() {
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Kafka))
	if err != nil {
		p.t.Fatal(err)
	}
	p.kafka, p.adm = cl, kadm.NewClient(cl)
	p.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{services.Addr("ETCD")}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if topics, err := p.adm.ListTopics(ctx); err == nil {
			var ours []string
			for _, name := range topics.Names() {
				if strings.HasPrefix(name, p.ID) {
					ours = append(ours, name)
				}
			}
			if len(ours) > 0 {
				p.adm.DeleteTopics(ctx, ours...)
			}
		}
		if groups, err := p.adm.ListGroups(ctx); err == nil {
			for name := range groups { // the workers', and the feeders' of each source
				if name == p.ID || strings.HasPrefix(name, p.ID+".") {
					p.adm.DeleteGroups(ctx, name)
				}
			}
		}
		p.etcd.Delete(ctx, "/"+p.ID+"/", clientv3.WithPrefix())
		p.etcd.Close()
		cl.Close()
	})
}

// Epoch is the one of the record that was published last.
func (p *Pipeline) Epoch() int64 { return p.epoch }

// SkipEpoch leaves out an epoch, as if a record had stood so shortly that nobody saw it.
func (p *Pipeline) SkipEpoch() { p.epoch++ }

// Publish puts a ring record into etcd under the next epoch.
func (p *Pipeline) Publish(r sink.Record) {
	p.t.Helper()
	p.epoch++
	r.Epoch, r.Kind = p.epoch, sink.KindPoints160
	if r.Previous != nil {
		prev := *r.Previous
		prev.Epoch = p.epoch - 1
		r.Previous = &prev
	}
	data, err := json.Marshal(r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.put("ring", string(data))
}

// Hot enters a key into the hot-key registry.
func (p *Pipeline) Hot(key string, copies int) {
	p.t.Helper()
	p.put(hotName(key), fmt.Sprintf(`{"copies": %d}`, copies))
}

// Cool takes a key out of the hot-key registry.
func (p *Pipeline) Cool(key string) {
	p.t.Helper()
	if _, err := p.etcd.Delete(p.t.Context(), "/"+p.ID+"/"+hotName(key)); err != nil {
		p.t.Fatalf("taking %s out of etcd: %v", key, err)
	}
}

func hotName(key string) string { return "hot/" + strings.ReplaceAll(key, ":", "%3A") }

func (p *Pipeline) put(name, value string) {
	p.t.Helper()
	if _, err := p.etcd.Put(p.t.Context(), "/"+p.ID+"/"+name, value); err != nil {
		p.t.Fatalf("writing %s to etcd: %v", name, err)
	}
}

// Feed starts a feeder process for every source.
func (p *Pipeline) Feed() *Process { return Start(p.t, "feed", "feed", "--config", p.File) }

// Work starts a worker process.
func (p *Pipeline) Work() *Process { return Start(p.t, "run", "run", "--config", p.File) }

// Produced is how many records the change topic of a table holds.
func (p *Pipeline) Produced(d *Database, table string) int64 {
	p.t.Helper()
	return p.records(p.Source(d.Kind) + "." + d.Schema + "." + table)
}

func (p *Pipeline) records(topic string) int64 {
	p.t.Helper()
	ends, err := p.adm.ListEndOffsets(p.t.Context(), topic)
	if err != nil {
		p.t.Fatal(err)
	}
	n := int64(0)
	ends.Each(func(e kadm.ListedOffset) { n += max(0, e.Offset) })
	return n
}

// Parked is how many records are on the dead-letter topic.
func (p *Pipeline) Parked() int64 {
	p.t.Helper()
	return p.records(changelog.NamesFor(p.Config.Kafka.TopicPrefix).DeadLetter)
}

// Write puts a record on a topic of somebody else's. Its name begins with the pipeline's ID, so that it is removed at the end.
func (p *Pipeline) Write(topic, key, value string) {
	p.t.Helper()
	p.WriteAt(time.Time{}, topic, key, value)
}

// WriteAt is Write by a producer who says when it was; zero: now. The broker keeps that where the topic's timestamps are its producers' (KeepStamps).
func (p *Pipeline) WriteAt(at time.Time, topic, key, value string) {
	p.t.Helper()
	if !strings.HasPrefix(topic, p.ID) {
		p.t.Fatalf("topic %s does not begin with %s", topic, p.ID)
	}
	r := &kgo.Record{Topic: topic, Timestamp: at}
	if key != "" {
		r.Key = []byte(key)
	}
	if value != "" {
		r.Value = []byte(value)
	}
	if err := p.kafka.ProduceSync(p.t.Context(), r).FirstErr(); err != nil {
		p.t.Fatalf("writing to %s: %v", topic, err)
	}
}

// CreateTopic makes a topic of somebody else's.
func (p *Pipeline) CreateTopic(name string, partitions int32) {
	p.t.Helper()
	// A broker answers before it knows the topic; EnsureTopics waits for the leaders.
	if _, err := changelog.EnsureTopics(p.t.Context(), p.adm, []changelog.TopicSpec{changelog.Settings{Partitions: partitions}.Change(name)}); err != nil {
		p.t.Fatalf("making topic %s: %v", name, err)
	}
}

// KeepStamps has a topic keep the times that its producers say, as topics of others mostly do.
func (p *Pipeline) KeepStamps(topic string) {
	p.t.Helper()
	created := "CreateTime"
	set := kadm.AlterConfig{Op: kadm.SetConfig, Name: "message.timestamp.type", Value: &created}
	answers, err := p.adm.AlterTopicConfigs(p.t.Context(), []kadm.AlterConfig{set}, topic)
	if err == nil {
		_, err = answers.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		p.t.Fatalf("setting the kind of times of topic %s: %v", topic, err)
	}
}

// Forget removes every record of a topic, as retention does. Offsets go on.
func (p *Pipeline) Forget(topic string) {
	p.t.Helper()
	ends, err := p.adm.ListEndOffsets(p.t.Context(), topic)
	var removed kadm.DeleteRecordsResponses
	if err == nil {
		removed, err = p.adm.DeleteRecords(p.t.Context(), ends.Offsets())
	}
	if err = cmp.Or(err, removed.Error()); err != nil {
		p.t.Fatalf("removing the records of topic %s: %v", topic, err)
	}
}

// AwaitDelivered waits until the workers' commits have reached the end of every change topic.
func (p *Pipeline) AwaitDelivered() {
	p.t.Helper()
	p.awaitEnds(func(ctx context.Context) ([]string, error) {
		topics, err := p.adm.ListTopics(ctx)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, n := range topics.Names() {
			if strings.HasPrefix(n, p.ID+"-") && !strings.HasPrefix(n, p.ID+"-own") {
				names = append(names, n)
			}
		}
		if len(names) == 0 {
			return nil, errors.New("there is no change topic yet")
		}
		return names, nil
	})
}

// AwaitDone is AwaitDelivered for one topic, whoever made it.
func (p *Pipeline) AwaitDone(topic string) {
	p.t.Helper()
	p.awaitEnds(func(context.Context) ([]string, error) { return []string{topic}, nil })
}

func (p *Pipeline) awaitEnds(topics func(context.Context) ([]string, error)) {
	p.t.Helper()
	Await(p.t, "the workers' offsets to reach the log's end", func() (bool, string) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
		defer cancel()
		names, err := topics(ctx)
		if err != nil {
			return false, err.Error()
		}
		ends, err := p.adm.ListEndOffsets(ctx, names...)
		if err != nil {
			return false, err.Error()
		}
		committed, err := p.adm.FetchOffsets(ctx, p.ID)
		if err != nil {
			return false, err.Error()
		}
		var behind []string
		ends.Each(func(e kadm.ListedOffset) {
			at, _ := committed.Lookup(e.Topic, e.Partition)
			if e.Offset > 0 && at.At < e.Offset {
				behind = append(behind, fmt.Sprintf("%s/%d at %d of %d", e.Topic, e.Partition, at.At, e.Offset))
			}
		})
		return len(behind) == 0, strings.Join(behind, ", ")
	})
}
