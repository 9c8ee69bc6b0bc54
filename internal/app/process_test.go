package app

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
	"invalidator/internal/obs"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// A process is on the state topic while it runs, with the mappings that it has in force, and is gone when it ends; the record of
// one that ended without a word long ago is removed.
func TestProcessRecord(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	o := changelog.Options{Brokers: cluster.ListenAddrs(), Log: quiet}
	cl, err := o.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	dir := t.TempDir()
	c := parse(t, dir, "kafka: {group: fleet}\n")
	if _, err := changelog.EnsureTopics(t.Context(), kadm.NewClient(cl), topicSettings(c).Own()); err != nil {
		t.Fatal(err)
	}
	state, err := changelog.OpenState(o, changelog.NamesFor(c.Kafka.TopicPrefix).State)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for key, age := range map[string]time.Duration{"process/dead-1": 2 * processForget, "process/lost-1": processForget / 2} {
		value, _ := json.Marshal(processRecord{V: 1, At: time.Now().Add(-age)})
		if err := state.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	write(t, c.Mappings.Dir, "users.yaml", usersMapping)
	write(t, c.Mappings.Dir, "broken.yaml", "x\n")
	m := beginMappings(t, c, obs.NewRegistry(), quiet, nil)
	record, err := sink.ParseRecord("ring.json", []byte(`{"epoch":7,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":"127.0.0.1:1","zone":"a"},"replicas":[]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	topology, err := sink.NewTopology(record)
	if err != nil {
		t.Fatal(err)
	}
	view := &registry.View{Topology: topology, Hot: sink.NewHotKeys(51, nil)}

	processes := func() (keys string, last processRecord) {
		st, err := state.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for key, e := range st.Under("process") {
			host, _, _ := strings.Cut(key, "-")
			keys += host + " "
			if key != "process/dead-1" && key != "process/lost-1" {
				keys = strings.Replace(keys, host, "self", 1)
				if err := json.Unmarshal(e.Value, &last); err != nil {
					t.Fatal(err)
				}
			}
		}
		return strings.TrimSpace(keys), last
	}
	p := &process{state: state, role: roleWorker, group: "fleet", mappings: m, view: func() *registry.View { return view }, log: quiet}
	stop := p.start(t.Context())
	var got processRecord
	waitFor(t, "the record, and the removal of the old one", func() bool {
		keys, r := processes()
		got = r
		return strings.Contains(keys, "self") && strings.Contains(keys, "process/lost") && !strings.Contains(keys, "process/dead")
	})
	first := got.At
	if got.Role != "worker" || got.Group != "fleet" || got.Mappings.Fingerprint != m.today().set.Fingerprint() || got.Mappings.Since.IsZero() ||
		len(got.Mappings.Failing) != 1 || got.Mappings.Failing[0] != "broken.yaml" || *got.Ring != (registryRecord{7, 51}) || got.Started.IsZero() || got.Version == "" {
		t.Errorf("the record is %+v", got)
	}
	waitFor(t, "the next record", func() bool { _, r := processes(); return r.At.After(first) })
	stop()
	if keys, _ := processes(); keys != "process/lost" {
		t.Errorf("left are %s", keys)
	}
}
