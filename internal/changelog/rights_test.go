package changelog_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func allow(resource kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) (acls []kfake.ACL) {
	for _, op := range ops {
		acls = append(acls, kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true})
	}
	return acls
}

func TestCheckRightsNamesWhatIsMissing(t *testing.T) {
	const topic, group = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	const describe, configs, read, write, create = kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate
	var acls []kfake.ACL
	for _, more := range [][]kfake.ACL{
		allow(topic, "good", describe, configs, read),
		allow(topic, "unreadable", describe, configs),
		allow(topic, "noconfigs", describe, read),
		allow(topic, "own", describe, configs, read, write),
		allow(topic, "ownread", describe, configs, read),
		allow(topic, "may", describe, configs, create),
		allow(topic, "maynot", describe, configs),
		allow(group, "ours", read, describe),
	} {
		acls = append(acls, more...)
	}
	var net kfake.VirtualNetwork
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(net.Listen), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "root", "x"), kfake.User("PLAIN", "us", "x", acls...),
		kfake.SeedTopics(1, "good", "unreadable", "noconfigs", "hidden", "own", "ownread"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	o := changelog.Options{Brokers: cluster.ListenAddrs(), Dial: net.DialContext, SASL: changelog.SASL{Mechanism: changelog.Plain, User: "us", Password: func() string { return "x" }}}
	cl, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	rights := changelog.Rights{
		User: "us", Reads: []string{"good", "unreadable", "noconfigs", "hidden"}, Writes: []string{"own", "ownread"},
		Makes:  []changelog.TopicSpec{{Name: "may", Partitions: 1}, {Name: "maynot", Partitions: 1}, {Name: "own"}},
		Groups: []string{"ours", "theirs"}, Others: func(topic string) bool { return topic != "ownread" },
	}
	findings, err := changelog.CheckRights(t.Context(), cl, rights)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		got = append(got, f.String())
	}
	const add = "(kafka-acls.sh --add --allow-principal 'User:us' --operation "
	if diff := cmp.Diff([]string{
		"error: topic hidden: our user may not Describe or DescribeConfigs or Read it: it is hidden from us " + add + "Describe --operation DescribeConfigs --operation Read --topic hidden)",
		"error: topic maynot: our user may not Create it: it does not exist yet, and is made at start " + add + "Create --topic maynot)",
		"warning: topic noconfigs: our user may not DescribeConfigs it: whether it is compacted, and how long it is kept, is not known " + add + "DescribeConfigs --topic noconfigs)",
		"error: topic ownread: our user may not Write it " + add + "Write --topic ownread)",
		"error: topic unreadable: our user may not Read it " + add + "Read --topic unreadable)",
		"error: our user may not Read consumer group theirs: nothing can be read in it " + add + "Read --group theirs)",
	}, got); diff != "" {
		t.Error(diff)
	}
	// What may not be asked for keeps nobody from asking for the rest.
	if others, err := changelog.CheckOthers(t.Context(), cl, []string{"good", "hidden", "noconfigs"}, 0); err != nil || len(others) != 1 || others[0].Topic != "good" {
		t.Errorf("settings: %v %v", others, err)
	}
	read1 := map[string]int{}
	topics, denied, err := changelog.ReadNewest(t.Context(), o, func(string) bool { return true }, 1, func(topic string, _ changelog.TopicRecord) error { read1[topic]++; return nil })
	if err != nil || len(read1) > 0 {
		t.Fatal(read1, err)
	}
	if diff := cmp.Diff([]string{"good", "noconfigs", "own", "ownread", "unreadable"}, topics); diff != "" || denied != nil {
		t.Errorf("of empty topics nothing is read: %s %v", diff, denied)
	}
	root := o
	root.SASL.User = "root"
	produce(t, root, "unreadable")
	topics, denied, err = changelog.ReadNewest(t.Context(), o, func(string) bool { return true }, 1, func(string, changelog.TopicRecord) error { return nil })
	if err != nil || len(topics) != 4 || cmp.Diff([]string{"unreadable"}, denied) != "" {
		t.Errorf("read %q, denied %q, %v", topics, denied, err)
	}
}

func produce(t *testing.T, o changelog.Options, topic string) {
	t.Helper()
	cl, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Where there is no authorizer all is allowed.
func TestCheckRightsSaysNothingWithoutAnAuthorizer(t *testing.T) {
	c := changelogtest.Start(t)
	cl, err := c.Options.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	findings, err := changelog.CheckRights(t.Context(), cl, changelog.Rights{
		Reads: []string{"gone"}, Writes: []string{c.Names.State}, Makes: []changelog.TopicSpec{{Name: "new", Partitions: 1}}, Groups: []string{"g"},
	})
	if err != nil || len(findings) > 0 {
		t.Errorf("%v %v", findings, err)
	}
	if there, err := c.Admin(t).ListTopics(t.Context(), "new"); err != nil || there.Has("new") && there["new"].Err == nil {
		t.Errorf("a check made a topic: %v %v", there, err)
	}
}
