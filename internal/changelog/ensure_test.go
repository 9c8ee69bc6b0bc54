package changelog_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func configsOf(c *changelogtest.Cluster, topic string) map[string]string {
	got := map[string]string{}
	for k, v := range c.TopicInfo(topic).Configs {
		got[k] = *v
	}
	return got
}

func TestOwnTopics(t *testing.T) {
	c := changelogtest.Start(t)
	got := map[string]int{}
	for _, s := range (changelog.Settings{}).Own() {
		got[s.Name] = len(c.PartitionInfos(s.Name))
	}
	want := map[string]int{
		"invalidator.control": 1, "invalidator.status": 1, "invalidator.state": 8, "invalidator.work": 64,
		"invalidator.deadletter": 8, "invalidator.keys": 8, "invalidator.refresh": 8, "invalidator.leader": 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if p := configsOf(c, "invalidator.state")["cleanup.policy"]; p != "compact" {
		t.Error(p)
	}
	if n := changelog.NamesFor("fleet2").State; n != "fleet2.state" {
		t.Error(n)
	}
}

func TestChangeTopicSettings(t *testing.T) {
	for name, test := range map[string]struct {
		brokers  int
		settings changelog.Settings
		want     map[string]string
		replicas int
	}{
		"one broker": {1, changelog.Settings{}, map[string]string{
			"cleanup.policy": "delete", "retention.ms": "90000000", "retention.bytes": "-1",
			"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1048576",
		}, 1},
		"three brokers": {3, changelog.Settings{MaxTTL: 2 * time.Hour, MaxMessageBytes: 5 << 20}, map[string]string{
			"cleanup.policy": "delete", "retention.ms": "10800000", "retention.bytes": "-1",
			"message.timestamp.type": "LogAppendTime", "max.message.bytes": "5242880",
			"min.insync.replicas": "2", "unclean.leader.election.enable": "false",
		}, 3},
		"three brokers, one replica by choice": {3, changelog.Settings{Replication: 1}, map[string]string{
			"cleanup.policy": "delete", "retention.ms": "90000000", "retention.bytes": "-1",
			"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1048576",
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := changelogtest.Start(t, kfake.NumBrokers(test.brokers), kfake.Ports(ports(test.brokers)...))
			specs := []changelog.TopicSpec{test.settings.Change("shop.shop.users")}
			for range 2 { // the second time there is nothing to do and nothing to find
				findings, err := changelog.EnsureTopics(t.Context(), c.Admin(t), specs)
				if err != nil || len(findings) != 0 {
					t.Fatal(findings, err)
				}
			}
			if d := cmp.Diff(test.want, configsOf(c, "shop.shop.users")); d != "" {
				t.Error(d)
			}
			if n := c.TopicInfo("shop.shop.users").NumReplicas; n != test.replicas {
				t.Errorf("%d replicas", n)
			}
			if n := len(c.PartitionInfos("shop.shop.users")); n != 8 {
				t.Errorf("%d partitions", n)
			}
		})
	}
}

func ports(n int) []int {
	var ps []int
	for i := range n {
		ps = append(ps, 9092+i)
	}
	return ps
}

func TestAnExistingTopicIsComparedAndLeftAlone(t *testing.T) {
	c := changelogtest.Start(t)
	must(t, c.CreateTopic("shop.shop.users", 4, map[string]string{
		"cleanup.policy": "compact,delete", "retention.ms": "3600000", "max.message.bytes": "2000000", "message.timestamp.type": "CreateTime",
	}))
	before := configsOf(c, "shop.shop.users")
	findings, err := changelog.EnsureTopics(t.Context(), c.Admin(t), []changelog.TopicSpec{changelog.Settings{}.Change("shop.shop.users")})
	must(t, err)
	var got []string
	for _, f := range findings {
		got = append(got, f.String())
	}
	for _, want := range []string{
		`^error: topic shop.shop.users: cleanup.policy is compact,delete, not delete: compaction removes changes.*--add-config cleanup.policy=delete`,
		`^warning: .*has 4 partitions, asked for are 8`,
		`^warning: .*retention.ms is 3600000, not 90000000`,
		`^warning: .*message.timestamp.type is CreateTime`,
	} {
		if !slices.ContainsFunc(got, regexp.MustCompile(want).MatchString) {
			t.Errorf("no finding like %s", want)
		}
	}
	if len(got) != 4 { // a larger max.message.bytes is none
		t.Errorf("%d findings:\n%s", len(got), strings.Join(got, "\n"))
	}
	if d := cmp.Diff(before, configsOf(c, "shop.shop.users")); d != "" {
		t.Error("altered:", d)
	}
}

func TestAStateTopicThatExpiresIsAnError(t *testing.T) {
	c := changelogtest.Start(t)
	must(t, c.CreateTopic("f2.state", 8, map[string]string{"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"}))
	findings, err := changelog.CheckTopics(t.Context(), c.Admin(t), changelog.Settings{Prefix: "f2"}.Own())
	must(t, err)
	if !slices.ContainsFunc(findings, func(f changelog.Finding) bool {
		return f.Topic == "f2.state" && f.Severity == cdc.SeverityError
	}) {
		t.Error(findings)
	}
	if n := len(findings); n != 8 { // seven do not exist, and nothing made them
		t.Errorf("%d findings: %v", n, findings)
	}
	if c.TopicInfo("f2.control") != nil {
		t.Error("a check made a topic")
	}
}

func TestTopicsMadeAtOnceByMany(t *testing.T) {
	c := changelogtest.Start(t)
	adm := c.Admin(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := changelog.EnsureTopics(t.Context(), adm, []changelog.TopicSpec{changelog.Settings{}.Change("shop.shop.orders")}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestARefusedTopicSaysWhatToDo(t *testing.T) {
	c := changelogtest.Start(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "shop.shop.users", Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err := changelog.EnsureTopics(t.Context(), c.Admin(t), []changelog.TopicSpec{changelog.Settings{}.Change("shop.shop.users")})
	var te *changelog.TopicError
	if !errors.As(err, &te) || te.Retryable() || !strings.Contains(err.Error(), "allow this user") {
		t.Error(err)
	}
}

func TestChangeTopicNames(t *testing.T) {
	long := strings.Repeat("t", 300)
	for _, test := range []struct{ prefix, schema, table, want string }{
		{"shop", "shop", "users", "shop.shop.users"},
		{"shop", "public", "user names", "shop.public.user_x20names"},
		{"shop", "größe", "a$b", "shop.gr_xc3_xb6_xc3_x9fe.a_x24b"},
	} {
		if got := changelog.ChangeTopic(test.prefix, test.schema, test.table); got != test.want {
			t.Errorf("%v: %s", test, got)
		}
	}
	a, b := changelog.ChangeTopic("p", "s", long+"1"), changelog.ChangeTopic("p", "s", long+"2")
	if len(a) != 249 || a == b {
		t.Error(a, b)
	}
}

func FuzzChangeTopic(f *testing.F) {
	f.Add("shop", "public", "user names")
	f.Add("", "\xff", strings.Repeat("ü", 200))
	legal := regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	f.Fuzz(func(t *testing.T, prefix, schema, table string) {
		if n := changelog.ChangeTopic(prefix, schema, table); !legal.MatchString(n) || n == "." || n == ".." {
			t.Error(n)
		}
	})
}

// Kafka makes no topic whose name differs from another's only in '.' and '_'. Both tables are fed all the same.
func TestTablesWhoseTopicsAreTooAlike(t *testing.T) {
	c := changelogtest.Start(t)
	adm := c.Admin(t)
	first, _ := ensure(t, adm, changelog.ChangeTopic("shop", "a_b", "c"))
	second, _ := ensure(t, adm, changelog.ChangeTopic("shop", "a", "b_c"))
	again, _ := ensure(t, adm, changelog.ChangeTopic("shop", "a", "b_c"))
	if first != "shop.a_b.c" || !strings.HasPrefix(second, "shop.a.b_c-") || again != second {
		t.Error(first, second, again)
	}
}

func ensure(t *testing.T, adm *kadm.Client, name string) (string, int) {
	t.Helper()
	name, n, findings, err := changelog.EnsureChangeTopic(t.Context(), adm, changelog.Settings{}.Change(name))
	if err != nil || len(findings) > 0 {
		t.Fatal(findings, err)
	}
	return name, n
}

func TestAChangeTopicsOwnLimitCounts(t *testing.T) {
	c := changelogtest.Start(t)
	must(t, c.CreateTopic("shop.shop.small", 8, map[string]string{
		"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "5000", "message.timestamp.type": "LogAppendTime",
	}))
	_, n, findings, err := changelog.EnsureChangeTopic(t.Context(), c.Admin(t), changelog.Settings{}.Change("shop.shop.small"))
	if err != nil || n != 5000 || len(findings) != 1 {
		t.Error(n, findings, err)
	}
}
