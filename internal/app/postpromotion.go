package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"invalidator/mapping"
	"invalidator/replay"
)

// clocksDiffer is how far ahead of ours the clock of a cluster manager may be.
const clocksDiffer = 15 * time.Second

// promotionPost is what POST /v1/promotions takes: a node has become the primary of a shard. It is for cluster managers that write no ring record into etcd.
type promotionPost struct {
	Shard  string    `json:"shard"`
	At     time.Time `json:"at"` // when; left out: now. The same shard and time again is the same promotion
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// promotionPosted is what it answers. Its JSON form is stable.
type promotionPosted struct {
	At       time.Time `json:"at"`
	Requests []string  `json:"requests"` // their ids: a replay, and a flush for each pool whose keys no row gives
}

// promotion asks for what a promotion owes: what the former primary may have taken with it is issued again, and flushed where no row says what it was.
func (p *posts) promotion(ctx context.Context, body []byte, from string) (any, error) {
	var q promotionPost
	if err := parsePost(body, &q); err != nil {
		return nil, err
	}
	if err := checkReason(q.By, q.Reason); err != nil {
		return nil, err
	}
	set, view, now := p.set(), p.view(), time.Now().UTC()
	if set == nil || view == nil {
		return nil, refused(http.StatusServiceUnavailable, "this worker has not begun yet: it has no mappings, or no ring")
	}
	if shards := shardsOf(view); !slices.Contains(shards, q.Shard) {
		near := mapping.Nearest(q.Shard, shards)
		if near == "" {
			return nil, refused(http.StatusBadRequest, "shard %q is in no ring record that is known (there are: %s)", q.Shard, strings.Join(shards, ", "))
		}
		return nil, refused(http.StatusBadRequest, "shard %q is in no ring record that is known: did you mean %q?", q.Shard, near)
	}
	if q.At.IsZero() {
		q.At = now
	}
	if q.At.After(now.Add(clocksDiffer)) {
		return nil, refused(http.StatusBadRequest, "at %s is in the future: it is %s here", q.At.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	answer := promotionPosted{At: q.At.UTC(), Requests: []string{}}
	for _, r := range promotionRequests(q, asker(q.By, from), now, p.conf.Replay.Window, view.Topology.Epoch(), set) {
		value, err := replay.Encode(r)
		if err != nil {
			return nil, refused(http.StatusBadRequest, "%v", err)
		}
		if err := p.requests.Write(ctx, p.names.Control, r.ID, value); err != nil {
			return nil, err
		}
		answer.Requests = append(answer.Requests, r.ID)
	}
	p.log.Info("a promotion was told: its deletes are issued again", "shard", q.Shard, "at", q.At, "by", asker(q.By, from), "reason", q.Reason, "requests", answer.Requests)
	return answer, nil
}

// promotionRequests are the replay of what was issued in the window before a promotion, until the plan is made, and the flushes of that shard's keys which no
// row gives. Their ids follow from the shard and the time, so that who tells of a promotion again, or to another worker, asks for the same.
func promotionRequests(q promotionPost, by string, now time.Time, window time.Duration, epoch int64, set *mapping.Set) []replay.Request {
	id := fmt.Sprintf("promoted/%s/%d", q.Shard, q.At.UnixMilli())
	all := []replay.Request{{
		ID: id, At: now, By: by, Reason: q.Reason, Action: replay.Replay, Target: replay.Target{Shard: q.Shard}, Window: replay.Issued, From: q.At.UTC().Add(-window),
	}}
	for _, u := range set.Underived() {
		all = append(all, replay.Request{
			ID: id + "/" + u.Pool, At: now, By: by, Reason: q.Reason, Action: replay.Flush, Target: replay.Target{Pool: u.Pool, Shard: q.Shard},
			Options: replay.Options{Stale: u.Stale > 0, StaleFor: int64(u.Stale / time.Second)},
			Cause:   &replay.Cause{What: replay.Promotion, Epoch: epoch},
		})
	}
	return all
}
