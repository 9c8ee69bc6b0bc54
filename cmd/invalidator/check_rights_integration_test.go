//go:build integration

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/harness"
)

// A real broker with an authorizer tells what our user may not do, and check names it with the command that grants it. With the
// grants that it names nothing is left.
func TestCheckNamesTheRightsThatAreMissingOnARealBroker(t *testing.T) {
	secured := harness.FreeAddr(t)
	broker := harness.NewBroker(t, secured)
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	lasting := "LogAppendTime"
	if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"message.timestamp.type": &lasting}, "dbz.shop.users"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), debezium(t, "plain.mysql.shop.users", "dbz.shop.users")...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	grant := func(b *kadm.ACLBuilder) {
		t.Helper()
		if _, err := adm.CreateACLs(t.Context(), b.Allow("User:us").AllowHosts().ResourcePatternType(kadm.ACLPatternLiteral)); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		"invalidator.yaml": fmt.Sprintf(`kafka: {brokers: ["%s"], sasl: {mechanism: plain, user: us, password: x}}
cache: {ring: {file: ring.json}}
sources: [{name: dbz, topics: {pattern: 'dbz\..*'}, first_start: latest}]
`, secured),
		"ring.json":         `{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":"127.0.0.1:1","zone":"a"},"replicas":[]}]}`,
		"mappings.d/a.yaml": "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, columns: {id: bigint}, keys: [\"user:{id}\"]}\n",
	}
	lacks := func() (all []string) {
		_, stdout, _ := invoke(t, files, "check", "-c", "invalidator.yaml")
		for line := range strings.Lines(stdout) {
			if strings.Contains(line, "our user may not") {
				all = append(all, strings.TrimSpace(line))
			}
		}
		return all
	}
	add := func(rest string) string {
		return " (kafka-acls.sh --add --allow-principal 'User:us' --operation " + rest + ")"
	}
	const group = "error: kafka: our user may not Read consumer group invalidator: nothing can be read in it"
	own := []string{"control", "deadletter", "keys", "leader", "refresh", "state", "status", "work"}

	// Nothing is granted: the topic of the changes is hidden, and so is whether our own exist.
	got := lacks()
	if !slices.Contains(got, group+add("Read --group invalidator")) {
		t.Errorf("without a grant: %q", got)
	}
	if want := "error: kafka, topic invalidator.state: our user may not Describe or DescribeConfigs or Read or Write it: it is hidden from us" +
		add("Describe --operation DescribeConfigs --operation Read --operation Write --topic invalidator.state"); !slices.Contains(got, want) {
		t.Errorf("without a grant, no %s", want)
	}

	// Half of it: what is seen is not read, and our own topics cannot be made.
	var names []string
	for _, name := range own {
		names = append(names, "invalidator."+name)
	}
	grant(kadm.NewACLs().Topics(append(names, "dbz.shop.users")...).Operations(kadm.OpDescribe))
	grant(kadm.NewACLs().Groups("invalidator").Operations(kadm.OpDescribe))
	harness.Await(t, "the grants to be known", func() (bool, string) {
		got = lacks()
		return slices.Contains(got, "error: source dbz, topic dbz.shop.users: our user may not read it: none of its changes is seen"+add("Describe --operation Read --topic dbz.shop.users")), fmt.Sprint(got)
	})
	for _, want := range []string{
		"error: kafka, topic dbz.shop.users: our user may not DescribeConfigs or Read it" + add("DescribeConfigs --operation Read --topic dbz.shop.users"),
		"error: kafka, topic invalidator.state: our user may not Create it: it does not exist yet, and is made at start" + add("Create --topic invalidator.state"),
		group + add("Read --group invalidator"),
	} {
		if !slices.Contains(got, want) {
			t.Errorf("with half of the grants, no %s in %q", want, got)
		}
	}
	if topics, err := adm.ListTopics(t.Context()); err != nil || topics.Has("invalidator.state") {
		t.Errorf("a check made topics: %v %v", topics.Names(), err)
	}

	grant(kadm.NewACLs().Topics(append(names, "dbz.shop.users")...).Operations(kadm.OpDescribeConfigs, kadm.OpRead, kadm.OpWrite, kadm.OpCreate))
	grant(kadm.NewACLs().Groups("invalidator").Operations(kadm.OpRead))
	harness.Await(t, "nothing to be missing", func() (bool, string) {
		got = lacks()
		return len(got) == 0, fmt.Sprint(got)
	})
}
