package changelog_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// history writes records to a topic with two partitions, each at an age from now.
type history struct {
	t  *testing.T
	c  *changelogtest.Cluster
	cl *kgo.Client
}

func newHistory(t *testing.T) *history {
	c := changelogtest.Start(t)
	for _, topic := range []string{"shop.shop.users", "shop.shop.orders", "other.shop.users"} {
		if err := c.CreateTopic(topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	cl, err := c.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	t.Cleanup(cl.Close)
	return &history{t, c, cl}
}

func (h *history) write(topic string, partition int32, age time.Duration, value string) {
	h.t.Helper()
	r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("k-" + value), Value: []byte(value), Timestamp: time.Now().Add(-age)}
	must(h.t, h.cl.ProduceSync(context.Background(), r).FirstErr())
}

func (h *history) reissue(since time.Duration) int64 {
	h.t.Helper()
	r := &changelog.Reissue{
		Options: h.c.Options, Topics: changelog.ChangeTopics("shop"), Since: time.Now().Add(-since), Why: "shop/1",
		Judge: func(_ string, r changelog.Record) changelog.Verdict {
			switch {
			case strings.HasPrefix(string(r.Value), "undone"):
				return changelog.Undone
			case strings.HasPrefix(string(r.Value), "junk"):
				return changelog.Unclear
			}
			return changelog.Stands
		},
	}
	n, err := r.Run(h.t.Context())
	must(h.t, err)
	return n
}

// again is what was written again, as "topic/partition value".
func (h *history) again() (all []string) {
	h.t.Helper()
	for _, topic := range []string{"shop.shop.users", "shop.shop.orders", "other.shop.users"} {
		for _, r := range h.c.Records(h.t, topic) {
			if len(r.Headers) > 0 && r.Headers[0].Key == changelog.HeaderReissued {
				if string(r.Key) != "k-"+string(r.Value) || string(r.Headers[0].Value) != "shop/1" {
					h.t.Errorf("key %s, header %s", r.Key, r.Headers[0].Value)
				}
				all = append(all, fmt.Sprintf("%s/%d %s", r.Topic, r.Partition, r.Value))
			}
		}
	}
	slices.Sort(all)
	return all
}

func (h *history) want(want ...string) {
	h.t.Helper()
	if got := h.again(); !slices.Equal(got, want) {
		h.t.Errorf("written again: %q, want %q", got, want)
	}
}

func TestUndoneRecordsAreWrittenAgainToTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t)
		h.write("shop.shop.users", 0, 30*time.Minute, "stands-1")
		h.write("shop.shop.users", 0, time.Minute, "undone-1")
		h.write("shop.shop.users", 1, 30*time.Minute, "stands-2")
		h.write("shop.shop.orders", 1, time.Minute, "undone-2")
		h.write("shop.shop.orders", 1, time.Minute, "junk")
		h.write("other.shop.users", 0, time.Minute, "undone-but-another-source's")
		if n := h.reissue(0); n != 3 {
			t.Errorf("%d", n)
		}
		h.want("shop.shop.orders/1 junk", "shop.shop.orders/1 undone-2", "shop.shop.users/0 undone-1")
		// After a crash: once more, and not what was written then.
		if n := h.reissue(0); n != 3 {
			t.Errorf("%d the second time", n)
		}
	})
}

// The last transactions may be older than the last saved position: it moved over what is not ours.
func TestUndoneRecordsAreLookedForAsFarBackAsTheyGo(t *testing.T) {
	for name, tc := range map[string]struct {
		ages []time.Duration // of records in partition 0, oldest first; the first stands, the rest is undone
	}{
		"days":                  {[]time.Duration{90 * time.Hour, 80 * time.Hour, 50 * time.Hour, 3 * time.Hour}},
		"to the log's start":    {[]time.Duration{0: 9000 * time.Hour, 1: 8000 * time.Hour}},
		"a margin in between":   {[]time.Duration{70 * time.Minute, 59 * time.Minute}},
		"close to the window":   {[]time.Duration{61 * time.Minute, 59 * time.Minute}},
		"beyond the first look": {[]time.Duration{5 * time.Hour, 61 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t)
				var want []string
				for i, age := range tc.ages {
					value := "stands"
					if i > 0 {
						value = fmt.Sprintf("undone-%d", i)
						want = append(want, "shop.shop.users/0 "+value)
					}
					h.write("shop.shop.users", 0, age, value)
				}
				h.write("shop.shop.users", 1, tc.ages[0]+time.Hour, "undone-in-a-quiet-partition")
				want = append(want, "shop.shop.users/1 undone-in-a-quiet-partition")
				h.reissue(0)
				h.want(want...)
			})
		})
	}
}

// A replica that applies in parallel may lack a transaction and have a later one: a record that stands ends the search only
// where it is older by a margin.
func TestARecordThatStandsBetweenUndoneOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t)
		h.write("shop.shop.users", 0, 2*time.Hour, "stands-0")
		h.write("shop.shop.users", 0, 61*time.Minute, "undone-1")
		h.write("shop.shop.users", 0, 59*time.Minute, "stands-1") // the oldest of the first look
		h.write("shop.shop.users", 0, 58*time.Minute, "undone-2")
		h.reissue(0)
		h.want("shop.shop.users/0 undone-1", "shop.shop.users/0 undone-2")
	})
}

func TestReissueOfNoTopics(t *testing.T) {
	c := changelogtest.Start(t)
	r := &changelog.Reissue{Options: c.Options, Topics: regexp.MustCompile("^none$"), Since: time.Now()}
	if n, err := r.Run(t.Context()); n != 0 || err != nil {
		t.Error(n, err)
	}
}
