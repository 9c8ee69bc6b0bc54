package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/internal/obs/obstest"
	"invalidator/mapping"
	"invalidator/sink/memcachetest"
)

const dbzSource = "  - {name: dbz, topics: {pattern: 'dbz.*'}, first_start: latest}\n"

// topicsIn are the findings about change topics and rights.
func topicsIn(findings []Finding) (got []string) {
	for _, f := range findings {
		if !strings.Contains(f.What, "does not exist yet") && strings.HasPrefix(f.Where, "kafka") {
			got = append(got, f.String())
		}
	}
	return got
}

// check looks at the settings of topics that somebody else made, and at no others.
func TestCheckTellsOfACompactedTopic(t *testing.T) {
	brokers := fakeBrokers(t)
	users, other := record("dbz.shop.users", dbzKey, mysqlFull), record("unrelated", "", "x")
	fill(t, brokers, map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}, users, other)
	c, _ := configured(t, brokers, dbzSource, samplesMapping)
	if diff := cmp.Diff([]string{"error: kafka, topic dbz.shop.users: cleanup.policy is compact: compaction removes changes that nobody has read yet, and before images with them " +
		"(kafka-configs.sh --alter --entity-type topics --entity-name dbz.shop.users --add-config cleanup.policy=delete)"}, topicsIn(Check(t.Context(), c, quiet))); diff != "" {
		t.Error(diff)
	}
}

// What our user may not do is named, with the command, by check of the brokers and of the topics.
func TestCheckNamesTheRightsThatAreMissing(t *testing.T) {
	acl := func(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true}
	}
	const topic = kmsg.ACLResourceTypeTopic
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "dbz.shop.users"), kfake.Superuser("PLAIN", "root", "x"), kfake.User("PLAIN", "nobody", "x"),
		kfake.User("PLAIN", "us", "x", acl(topic, "dbz.", kmsg.ACLOperationDescribe), acl(topic, "invalidator.", kmsg.ACLOperationAny+1), acl(kmsg.ACLResourceTypeGroup, "invalidator", kmsg.ACLOperationRead)))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	as := func(user string) *config.Config {
		c, _ := configured(t, cluster.ListenAddrs(), dbzSource, samplesMapping)
		c.Kafka.SASL = &config.SASL{Mechanism: "plain", User: user, Password: config.NewSecret("x")}
		return c
	}
	if got := topicsIn(Check(t.Context(), as("root"), quiet)); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "our user") }) {
		t.Errorf("who may do all lacks %q", got)
	}
	if got := topicsIn(Check(t.Context(), as("nobody"), quiet)); !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "--operation Read --group invalidator)") }) ||
		!slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "--operation Write --topic invalidator.state)") }) {
		t.Errorf("who may do nothing lacks %q", got)
	}
	o, err := kafkaOptions(as("root").Kafka, quiet)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(context.Background(), record("dbz.shop.users", dbzKey, mysqlFull)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := as("us")
	hidden := as("us")
	hidden.Sources[0].Topics.Pattern = "mx"
	if out := Check(t.Context(), hidden, quiet); !slices.ContainsFunc(out, func(f Finding) bool {
		return f.What == "no topic matches ^(?:mx)$ yet (topics.pattern is for whole names, and the brokers hide what our user may not Describe)"
	}) {
		t.Errorf("of hidden topics: %v", out)
	}
	if diff := cmp.Diff([]string{"error: kafka, topic dbz.shop.users: our user may not DescribeConfigs or Read it (kafka-acls.sh --add --allow-principal 'User:us' --operation DescribeConfigs --operation Read --topic dbz.shop.users)"},
		topicsIn(Check(t.Context(), c, quiet))); diff != "" {
		t.Error(diff)
	}
	set, _, err := mapping.Load(c.Mappings.Dir)
	if err != nil {
		t.Fatal(err)
	}
	out := CheckTables(t.Context(), c, set, quiet)
	const want = "error: source dbz, topic dbz.shop.users: our user may not read it: none of its changes is seen (kafka-acls.sh --add --allow-principal 'User:us' --operation Describe --operation Read --topic dbz.shop.users)"
	if len(out.Findings) != 1 || out.Findings[0].String() != want {
		t.Errorf("got %v", out.Findings)
	}
	if slices.ContainsFunc(out.Problems, func(p mapping.Problem) bool { return strings.Contains(p.What, "no change of") }) {
		t.Errorf("what could not be read is said to be missing: %v", out.Problems)
	}
}

// A worker tells of what is in error once, looks again, and tells when it is over; while the broker does not answer nothing is over.
func TestWatchTopicsTellsOnceAndLooksAgain(t *testing.T) {
	brokers := fakeBrokers(t)
	fill(t, brokers, map[string]string{"cleanup.policy": "compact"}, record("dbz.shop.users", dbzKey, mysqlFull), record("dbz.shop.flat", dbzKey, flatRow))
	c, set := configured(t, brokers, dbzSource, samplesMapping)
	ensureOwn(t, c)
	var out obstest.Log
	looked := make(chan struct{})
	stop := inBackground(t.Context(), func(ctx context.Context) {
		watchTopics(ctx, c, func() *mapping.Set {
			select {
			case looked <- struct{}{}:
			case <-ctx.Done():
			}
			return set
		}, slog.New(slog.NewTextHandler(&out, nil)), time.Millisecond)
	})
	defer stop()
	const fails, over = "a check of the topics that somebody else feeds fails", "a finding about the topics that somebody else feeds is over"
	for range 3 { // the third begins when the second has told what it found
		<-looked
	}
	if out.Count(fails) != 2 || out.Count("cleanup.policy is compact") != 1 || out.Count("its records are rows alone") != 1 || out.Count("level=ERROR") != 2 || out.Count(over) != 0 {
		t.Fatalf("after two looks: %s", out.String())
	}
	adm := adminOf(t, brokers)
	remove := "delete"
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &remove}}, "dbz.shop.users", "dbz.shop.flat"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-looked
	}
	if out.Count(fails) != 2 || out.Count(over) != 1 {
		t.Errorf("after it was mended: %s", out.String())
	}
}

// Without a source that somebody else feeds there is nothing to watch.
func TestWatchTopicsEndsWhereNothingIsFedByOthers(t *testing.T) {
	watchTopics(t.Context(), &config.Config{Sources: []config.Source{{Name: "ours"}}}, nil, quiet, time.Hour)
}

// A broker that is away ends nothing and is no finding: the worker itself meets it.
func TestTopicErrorsKnowsNothingOfABrokerThatIsAway(t *testing.T) {
	c, set := configured(t, []string{"127.0.0.1:1"}, dbzSource, samplesMapping)
	if got, ok := topicErrors(t.Context(), c, set, quiet); ok || got != nil {
		t.Errorf("%v %v", got, ok)
	}
}

func adminOf(t *testing.T, brokers []string) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

func ensureOwn(t *testing.T, c *config.Config) {
	t.Helper()
	o, err := kafkaOptions(c.Kafka, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryTopics(t.Context(), topicSettings(c).Own(), o); err != nil {
		t.Fatal(fmt.Errorf("making our own topics: %w", err))
	}
}

// A worker says at start what is in error, and holds nothing up: the topic that is compacted is read, and the other sources too.
func TestWorkerTellsOfTopicsAtStartAndWorksOn(t *testing.T) {
	brokers := fakeBrokers(t)
	fill(t, brokers, map[string]string{"cleanup.policy": "compact"}, record("dbz.shop.users", dbzKey, mysqlFull))
	fill(t, brokers, nil, record("flat.users", `{"id":2}`, `{"id":2,"email":"b"}`), record("good.users", `{"id":3}`, strings.ReplaceAll(mysqlFull, `"id":1`, `"id":3`)))
	node := memcachetest.Start(t)
	node.Set("user:1", "stale")
	node.Set("user:3", "stale")
	c, _ := configured(t, brokers, `  - {name: dbz, topics: {pattern: 'dbz\..*'}, first_start: earliest}
  - {name: flat, topics: {pattern: 'flat\..*'}, first_start: earliest}
  - {name: good, topics: {pattern: 'good\..*'}, first_start: earliest}
`, usersMapping)
	write(t, filepath.Dir(c.Mappings.Dir), "ring.json", fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, node.Addr()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out obstest.Log
	done := make(chan error, 1)
	w := &Worker{Config: c, Log: slog.New(slog.NewTextHandler(&out, nil)), Registry: obs.NewRegistry()}
	go func() { done <- w.Run(ctx) }()
	waitFor(t, "both keys to be deleted", func() bool {
		_, first := node.Get("user:1")
		_, third := node.Get("user:3")
		return !first && !third
	})
	waitFor(t, "both errors", func() bool {
		return out.Count("cleanup.policy is compact") == 1 && out.Count("its records are rows alone, and the source does not say so") == 1
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := out.Count("a check of the topics that somebody else feeds fails"); n != 2 {
		t.Errorf("told %d times: %s", n, out.String())
	}
}
