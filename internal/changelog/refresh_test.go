package changelog_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func openRefresher(t *testing.T, c *changelogtest.Cluster) *changelog.Refresher {
	t.Helper()
	f, err := changelog.OpenRefresher(c.Options, c.Names.Refresh)
	must(t, err)
	t.Cleanup(f.Close)
	return f
}

// request waits for a request's end.
func request(ctx context.Context, f *changelog.Refresher, r changelog.RefreshRequest) error {
	done := make(chan error, 1)
	f.Request(ctx, r, func(err error) { done <- err })
	return <-done
}

func TestRefreshRequestOnTheWire(t *testing.T) {
	c := changelogtest.Start(t)
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	f := openRefresher(t, c)
	must(t, request(t.Context(), f, changelog.RefreshRequest{
		V: 1, Key: "home:de", Pool: "home", Team: "web", Mapping: "home", Source: "shop", Table: "shop.banners",
		Row: json.RawMessage(`{"id":18446744073709551615}`), Reason: "update", Committed: at, At: at.Add(1100 * time.Millisecond),
	}))
	must(t, request(t.Context(), f, changelog.RefreshRequest{V: 1, Key: "home:de", At: at}))
	rs := c.Records(t, c.Names.Refresh)
	want := `{"v":1,"key":"home:de","pool":"home","team":"web","mapping":"home","source":"shop","table":"shop.banners","row":{"id":18446744073709551615},"reason":"update","committed":"2026-11-30T10:00:00Z","at":"2026-11-30T10:00:01.1Z"}`
	if string(rs[0].Key) != "home:de" || string(rs[0].Value) != want {
		t.Errorf("got %s %s\nwant %s", rs[0].Key, rs[0].Value, want)
	}
	if got := string(rs[1].Value); rs[1].Partition != rs[0].Partition || !strings.Contains(got, `"row":null`) || strings.Contains(got, "committed") {
		t.Errorf("what is not known: partition %d, %s", rs[1].Partition, got)
	}
}

// A broker that is away is waited for; the end of the context is not.
func TestRefreshRequestWaitsForTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		var away atomic.Bool
		away.Store(true)
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, errors.New("away"), away.Load()
		})
		f := openRefresher(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := request(ctx, f, changelog.RefreshRequest{V: 1, Key: "a"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.AfterFunc(time.Minute, func() { away.Store(false) })
		must(t, request(t.Context(), f, changelog.RefreshRequest{V: 1, Key: "b"}))
	})
}

// What waits is bounded: more is refused at once, so that nobody stands.
func TestRefreshRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, errors.New("away"), true
		})
		f := openRefresher(t, c)
		var full atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		for range 12_000 {
			f.Request(ctx, changelog.RefreshRequest{V: 1, Key: "a"}, func(err error) {
				if errors.Is(err, kgo.ErrMaxBuffered) {
					full.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := full.Load(); n != 2000 {
			t.Errorf("%d of 12000 were refused, want 2000", n)
		}
		cancel()
	})
}

func TestRefreshRequestThatIsNotAllowed(t *testing.T) {
	c := changelogtest.Start(t)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range produce.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	err := request(t.Context(), openRefresher(t, c), changelog.RefreshRequest{V: 1, Key: "a"})
	if err == nil || !strings.Contains(err.Error(), "topic invalidator.refresh") || !strings.Contains(err.Error(), "allow this user") {
		t.Errorf("got %v", err)
	}
}
