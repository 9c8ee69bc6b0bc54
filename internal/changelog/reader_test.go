package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// produceAt writes one record with a time of its own.
func produceAt(t *testing.T, c *changelogtest.Cluster, topic string, partition int32, value string, at time.Time) {
	t.Helper()
	cl, err := c.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value), Timestamp: at}
	if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestReadTopicBeginsAtATimeAndEndsAtTheEnd(t *testing.T) {
	c := changelogtest.Start(t)
	if _, err := c.Admin(t).CreateTopics(context.Background(), 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	produceAt(t, c, "t", 0, "long ago", now.Add(-time.Hour))
	produceAt(t, c, "t", 0, "new", now)
	produceAt(t, c, "t", 1, "new too", now)
	var got []string
	err := changelog.ReadTopic(t.Context(), c.Options, "t", now.Add(-time.Minute), false, func(r changelog.TopicRecord) error {
		got = append(got, fmt.Sprint(r.Partition, "/", r.Offset, " ", string(r.Value)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0/1 new", "1/0 new too"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadTopicFollows(t *testing.T) {
	c := changelogtest.Start(t)
	if _, err := c.Admin(t).CreateTopics(context.Background(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	produceAt(t, c, "t", 0, "first", time.Now())
	n := 0
	err := changelog.ReadTopic(ctx, c.Options, "t", time.Now().Add(-time.Minute), true, func(changelog.TopicRecord) error {
		if n++; n == 1 {
			produceAt(t, c, "t", 0, "second", time.Now())
		} else {
			cancel()
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d records, %v", n, err)
	}
}

func TestReadTopicEndsWithTheReadersError(t *testing.T) {
	c := changelogtest.Start(t)
	if _, err := c.Admin(t).CreateTopics(context.Background(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	produceAt(t, c, "t", 0, "a", time.Now())
	produceAt(t, c, "t", 0, "b", time.Now())
	enough := errors.New("enough")
	n := 0
	err := changelog.ReadTopic(t.Context(), c.Options, "t", time.Unix(1, 0), false, func(changelog.TopicRecord) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
	err = changelog.ReadTopic(t.Context(), c.Options, "none", time.Now(), false, func(changelog.TopicRecord) error { return nil })
	if want := "topic none does not exist (a change topic of ours is named <topic_prefix>.<schema>.<table>)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
