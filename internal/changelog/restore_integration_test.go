//go:build integration

package changelog_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// A member that is given 256 partitions with a day of their journals begins them all within seconds, from one look at the state topic.
func TestRealRestoreOf256Partitions(t *testing.T) {
	o, adm, prefix := realKafka(t)
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	names := changelog.NamesFor(prefix)
	topic := prefix + ".shop.wide"
	const partitions, hours = 256, 24
	_, err := changelog.EnsureTopics(t.Context(), adm, append(changelog.Settings{Prefix: prefix}.Own(), changelog.Settings{Partitions: partitions}.Change(topic)))
	must(t, err)
	group := prefix + "workers"
	t.Cleanup(func() {
		if _, err := adm.DeleteGroups(context.Background(), group); err != nil {
			t.Error(err)
		}
	})
	state, err := changelog.OpenState(o, names.State)
	must(t, err)
	defer state.Close()

	line := `{"at":"2026-11-30T10:00:00Z","lanes":[{"lane":"live","lowest":%d,"highest":4711}],"epoch":7,"confirmed":"2026-11-30T09:59:59Z","fingerprint":"9f2c7a66b1"},`
	offsets := kadm.Offsets{}
	for p := range int32(partitions) {
		number := fmt.Sprint(p)
		var writes []changelog.Write
		for h := range hours {
			var lines strings.Builder
			for m := range 60 {
				fmt.Fprintf(&lines, line, 1000*h+m)
			}
			writes = append(writes, changelog.Write{Key: changelog.StateKey("journal", group, topic, number, "-", "w", fmt.Sprint(h)), Value: []byte("[" + strings.TrimSuffix(lines.String(), ",") + "]")})
		}
		writes = append(writes, changelog.Write{Key: changelog.StateKey("partition", group, topic, number, "3", "w"), Value: []byte(`{"offset":0}`)})
		_, err := state.PutAll(t.Context(), writes)
		must(t, err)
		offsets.Add(kadm.Offset{Topic: topic, Partition: p, LeaderEpoch: -1, Metadata: `{"v":1,"partition":0,"offset":0,"generation":3,"writer":"w"}`})
	}
	must(t, adm.CommitAllOffsets(t.Context(), group, offsets))
	began := time.Now()
	_, err = state.Load(t.Context())
	must(t, err)
	t.Logf("one look at the state topic takes %s", time.Since(began))

	c := newFakeConsumer()
	g := &groupRig{t: t, cluster: &changelogtest.Cluster{}}
	began = time.Now()
	leave := g.join(c, func(opts *changelog.GroupOptions) {
		opts.Options, opts.Group, opts.State, opts.Names = o, group, state, names
		opts.Starts = []changelog.Start{{Pattern: regexp.MustCompile(regexp.QuoteMeta(topic)), At: "earliest"}}
	})
	defer leave()
	c.await(t, func() bool { return len(c.started) == partitions })
	took := time.Since(began)
	t.Logf("all began after %s", took)
	if took > 10*time.Second {
		t.Errorf("all began after %s", took)
	}
	for p, was := range c.was {
		if len(was.Journal) != hours || was.State == nil {
			t.Fatalf("%s was given %d records of its journal, state %s", p, len(was.Journal), was.State)
		}
	}
}
