package changelog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// makeTopic makes a topic as somebody else would.
func makeTopic(t *testing.T, adm *kadm.Client, name string, replicas int16, settings ...string) {
	t.Helper()
	configs := map[string]*string{}
	for _, s := range settings {
		k, v, _ := strings.Cut(s, "=")
		configs[k] = &v
	}
	if _, err := adm.CreateTopic(context.Background(), 1, replicas, configs, name); err != nil {
		t.Fatal(name, err)
	}
}

// What a reader of changes needs of a topic that somebody else made, one setting after the other (G3: times by the broker).
func TestG3CheckOthersLooksAtTheirSettings(t *testing.T) {
	c := changelogtest.Start(t, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
	adm := c.Admin(t)
	const good = "message.timestamp.type=LogAppendTime"
	alter := func(topic, setting string) string {
		return " (kafka-configs.sh --alter --entity-type topics --entity-name " + topic + " --add-config " + setting + ")"
	}
	for i, tt := range []struct {
		replicas int16
		settings []string
		want     []string // topic T
	}{
		{3, []string{good, "retention.ms=90000000", "min.insync.replicas=2"}, nil},
		{3, []string{good, "retention.ms=-1", "min.insync.replicas=3"}, nil},
		{3, []string{good, "min.insync.replicas=2", "cleanup.policy=compact"}, []string{
			"error: topic T: cleanup.policy is compact: compaction removes changes that nobody has read yet, and before images with them" + alter("T", "cleanup.policy=delete")}},
		{3, []string{good, "min.insync.replicas=2", "cleanup.policy=compact,delete"}, []string{
			"error: topic T: cleanup.policy is compact,delete: compaction removes changes that nobody has read yet, and before images with them" + alter("T", "cleanup.policy=delete")}},
		{3, []string{good, "min.insync.replicas=2", "retention.ms=89999999"}, []string{
			"warning: topic T: retention.ms is 24h59m59.999s, less than cache.max_ttl and an hour (25h0m0s): copies outlive the changes that a worker which was away, or a replay, must still read" + alter("T", "retention.ms=90000000")}},
		{3, []string{good, "min.insync.replicas=2", "retention.bytes=1000"}, []string{
			"warning: topic T: retention.bytes is 1000: a busy hour removes changes before their time" + alter("T", "retention.bytes=-1")}},
		{3, []string{"message.timestamp.type=CreateTime", "min.insync.replicas=2"}, []string{
			"warning: topic T: message.timestamp.type is CreateTime: a replay finds its window by record times, which are then of the producer's clock, or of the commit, and it misses what was appended late" + alter("T", "message.timestamp.type=LogAppendTime")}},
		{3, []string{good, "min.insync.replicas=2", "unclean.leader.election.enable=true"}, []string{
			"warning: topic T: unclean.leader.election.enable is true: an unclean leader loses acknowledged changes silently" + alter("T", "unclean.leader.election.enable=false")}},
		{3, []string{good, "min.insync.replicas=1"}, []string{
			"warning: topic T: min.insync.replicas is 1: an acknowledged change is lost with one broker" + alter("T", "min.insync.replicas=2")}},
		{1, []string{good, "min.insync.replicas=1", "unclean.leader.election.enable=true"}, []string{
			"warning: topic T: it has 1 replica on 3 brokers: changes are lost with a disk (reassign its partitions (kafka-reassign-partitions.sh), and give the connector topic.creation.default.replication.factor=3)"}},
	} {
		topic := fmt.Sprintf("dbz.t%d", i)
		makeTopic(t, adm, topic, tt.replicas, tt.settings...)
		findings, err := changelog.CheckOthers(t.Context(), client(t, c), []string{topic, "dbz.gone"}, 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range findings {
			got = append(got, strings.ReplaceAll(f.String(), topic, "T"))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: %s", tt.settings, diff)
		}
	}
}

// A hundred tables with one setting are one line.
func TestCheckOthersTellsOnceWhatManyTopicsHave(t *testing.T) {
	c := changelogtest.Start(t)
	adm := c.Admin(t)
	var topics []string
	for i := range 8 {
		topics = append(topics, fmt.Sprintf("dbz.shop.t%d", i))
		makeTopic(t, adm, topics[i], 1, "message.timestamp.type=LogAppendTime", "cleanup.policy=compact")
	}
	slices.Reverse(topics)
	findings, err := changelog.CheckOthers(t.Context(), client(t, c), topics, 0)
	if err != nil || len(findings) != 1 || findings[0].Topic != "dbz.shop.t0" || !strings.HasSuffix(findings[0].What,
		"; so of 7 more: dbz.shop.t1, dbz.shop.t2, dbz.shop.t3, dbz.shop.t4, dbz.shop.t5 …") || !strings.Contains(findings[0].Hint, "--entity-name dbz.shop.t0 ") {
		t.Errorf("%q %v", findings, err)
	}
	if findings, err := changelog.CheckOthers(t.Context(), client(t, c), nil, 0); findings != nil || err != nil {
		t.Errorf("of no topic: %v %v", findings, err)
	}
}

func client(t *testing.T, c *changelogtest.Cluster) *kgo.Client {
	t.Helper()
	cl, err := c.Options.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}
