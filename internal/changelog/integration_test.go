//go:build integration

package changelog_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/test/integration/services"
)

// realKafka returns options for the local broker, an admin client, and a prefix under which every topic is removed after.
func realKafka(t *testing.T) (changelog.Options, *kadm.Client, string) {
	t.Helper()
	o := changelog.Options{Brokers: []string{services.Addr("KAFKA")}}
	cl, err := o.Connect(t.Context())
	must(t, err)
	adm := kadm.NewClient(cl)
	prefix := fmt.Sprintf("t%d", time.Now().UnixNano())
	t.Cleanup(func() {
		defer cl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		topics, err := adm.ListTopics(ctx)
		if err != nil {
			t.Error(err)
		}
		names := slices.DeleteFunc(topics.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix) })
		if _, err := adm.DeleteTopics(ctx, names...); err != nil {
			t.Error(err)
		}
	})
	return o, adm, prefix
}

func TestRealTopicSettings(t *testing.T) {
	_, adm, prefix := realKafka(t)
	s := changelog.Settings{Prefix: prefix, MaxTTL: 2 * time.Hour, MaxMessageBytes: 2 << 20, Partitions: 3}
	change := s.Change(changelog.ChangeTopic(prefix, "shop", "user names"))
	specs := append(s.Own(), change)
	for range 2 {
		findings, err := changelog.EnsureTopics(t.Context(), adm, specs)
		if err != nil || len(findings) > 0 {
			t.Fatal(findings, err)
		}
	}
	topics, err := adm.ListTopics(t.Context(), change.Name, prefix+".work")
	must(t, err)
	if n := len(topics[change.Name].Partitions); n != 3 {
		t.Errorf("%d partitions", n)
	}
	if n := len(topics[prefix+".work"].Partitions); n != 64 {
		t.Errorf("%d partitions of work", n)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), change.Name)
	must(t, err)
	got := map[string]string{}
	for _, c := range configs[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	for k, want := range map[string]string{
		"cleanup.policy": "delete", "retention.ms": "10800000", "retention.bytes": "-1",
		"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2097152",
	} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}

	// An operator turns compaction on.
	compact := "compact"
	_, err = adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &compact}}, change.Name)
	must(t, err)
	findings, err := changelog.CheckTopics(t.Context(), adm, specs)
	must(t, err)
	if len(findings) != 1 || findings[0].Severity != cdc.SeverityError || findings[0].Topic != change.Name {
		t.Error(findings)
	}
}

func TestRealTablesWhoseTopicsAreTooAlike(t *testing.T) {
	_, adm, prefix := realKafka(t)
	first, _ := ensure(t, adm, changelog.ChangeTopic(prefix, "a_b", "c"))
	second, _ := ensure(t, adm, changelog.ChangeTopic(prefix, "a", "b_c"))
	again, _ := ensure(t, adm, changelog.ChangeTopic(prefix, "a", "b_c"))
	if first == second || again != second {
		t.Error(first, second, again)
	}
}

func TestRealStateAfterCompaction(t *testing.T) {
	o, adm, prefix := realKafka(t)
	names := changelog.NamesFor(prefix)
	_, err := changelog.EnsureTopics(t.Context(), adm, changelog.Settings{Prefix: prefix}.Own())
	must(t, err)
	var hurry []kadm.AlterConfig
	for k, v := range map[string]string{
		"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0", "max.compaction.lag.ms": "100",
	} {
		hurry = append(hurry, kadm.AlterConfig{Name: k, Value: &v})
	}
	_, err = adm.AlterTopicConfigs(t.Context(), hurry, names.State)
	must(t, err)

	s, err := changelog.OpenState(o, names.State)
	must(t, err)
	t.Cleanup(s.Close)
	want := map[string]string{}
	write := func(round int) {
		for k := range 20 {
			key := fmt.Sprintf("process/%d", k)
			if round%3 == 2 && k%4 == 0 {
				must(t, s.Remove(t.Context(), key))
				delete(want, key)
				continue
			}
			want[key] = strconv.Itoa(round)
			must(t, s.Put(t.Context(), key, []byte(want[key])))
		}
	}
	check := func() {
		t.Helper()
		got := map[string]string{}
		for k, e := range load(t, s).Under("process") {
			got[k] = string(e.Value)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	deadline := time.Now().Add(90 * time.Second)
	for round := 0; ; round++ {
		write(round)
		check()
		if round >= 3 && records(t, o, adm, names.State) < (round+1)*20*3/4 {
			t.Logf("compacted after %d rounds", round+1)
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the broker has not compacted the topic")
		}
	}
	for k := range maps.Keys(want) { // everything is removed: the tail of the topic is tombstones
		must(t, s.Remove(t.Context(), k))
	}
	clear(want)
	check()
}

// records counts what a consumer gets of a topic.
func records(t *testing.T, o changelog.Options, adm *kadm.Client, topic string) int {
	t.Helper()
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	must(t, err)
	cl, err := o.Client(kgo.ConsumeTopics(topic))
	must(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	left := map[int32]int64{}
	ends.Each(func(l kadm.ListedOffset) {
		if l.Offset > 0 {
			left[l.Partition] = l.Offset
		}
	})
	n := 0
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		must(t, fs.Err())
		for _, r := range fs.Records() {
			if n++; r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		}
	}
	return n
}

func TestRealVersionRanges(t *testing.T) {
	o, _, _ := realKafka(t)
	got := connectError(t, o, kgo.MaxVersions(kversion.V0_10_2()))
	t.Log(got)
	wantIn(t, got, "Produce: broker", "client 0..2")
}

func TestRealDeadLetter(t *testing.T) {
	o, adm, prefix := realKafka(t)
	names := changelog.NamesFor(prefix)
	_, err := changelog.EnsureTopics(t.Context(), adm, changelog.Settings{Prefix: prefix}.Own())
	must(t, err)
	d, err := changelog.OpenDeadLetter(o, names.DeadLetter)
	must(t, err)
	defer d.Close()
	full := make([]byte, 1<<20-1000) // as large as a change topic takes
	rand.NewChaCha8([32]byte{}).Read(full)
	must(t, d.Park(t.Context(), &kgo.Record{Topic: "a.b.c", Offset: 1, Key: []byte("full"), Value: full}, "why"))
	must(t, d.Park(t.Context(), &kgo.Record{Topic: "a.b.c", Offset: 2, Key: []byte("more"), Value: append(full, full...)}, "why"))

	cl, err := o.Client(kgo.ConsumeTopics(names.DeadLetter))
	must(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := map[string]int{}
	for len(got) < 2 {
		fs := cl.PollFetches(ctx)
		must(t, fs.Err())
		for _, r := range fs.Records() {
			got[string(r.Key)] = len(r.Value)
		}
	}
	if got["full"] != len(full) || got["more"] != 0 {
		t.Error(got)
	}
}
