package changelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WorkPartition is the partition of Names.Work whose owner does the work of a name that belongs to no change partition.
func WorkPartition(name string) int32 { return partitionOf(name, WorkPartitions) }

// holdsTimeout bounds HoldsWork. It is less than a session, so that an answer is of the present one.
const holdsTimeout = 2 * time.Second

// ErrNotOurs says that a work partition is another member's, or may be at any moment.
var ErrNotOurs = errors.New("the work is another member's now")

// HoldsWork asks the broker whether a work partition is ours still: a process that was stopped for a while has not heard yet that it is not, and learns it here before it begins what
// two must not do at once. ErrNotOurs: it is not; another error: it is not known.
//
// It is a heartbeat, which the broker refuses from who is no member of the group's present generation; what that generation has given us goes only by a callback that Work
// hears of. While the group changes it is ours until then.
func (g *Group) HoldsWork(ctx context.Context, n int32) error {
	ctx, cancel := context.WithTimeout(ctx, holdsTimeout)
	defer cancel()
	select {
	case <-g.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = g.opts.Group
	req.MemberID, req.Generation = g.cl.GroupMetadata()
	if g.opts.InstanceID != "" {
		req.InstanceID = &g.opts.InstanceID
	}
	resp, err := req.RequestWith(ctx, g.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.FencedInstanceID):
		return fmt.Errorf("%w (%w)", ErrNotOurs, err)
	case err != nil && !errors.Is(err, kerr.RebalanceInProgress):
		return fmt.Errorf("asking whether this process is in the group %s: %w", g.opts.Group, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.work[n] {
		return ErrNotOurs
	}
	return nil
}

// claim notes work partitions that are ours from now on, or are not any more, and tells who does their work. The caller has the turn.
func (g *Group) claim(numbers []int32, ours bool) {
	if len(numbers) == 0 {
		return
	}
	g.mu.Lock()
	for _, n := range numbers {
		if ours {
			g.mu.work[n] = true
		} else {
			delete(g.mu.work, n)
		}
	}
	owned := slices.Sorted(maps.Keys(g.mu.work))
	g.mu.Unlock()
	g.opts.Work(owned)
}

// evenBalancer is the cooperative sticky balancer, for changes and for work each by itself: it evens out no more than their sum, and one
// member might get all of the changes.
type evenBalancer struct {
	kgo.GroupBalancer
	work string // the topic
}

func newEvenBalancer(work string) evenBalancer {
	return evenBalancer{kgo.CooperativeStickyBalancer(), work}
}

// MemberBalancer implements kgo.GroupBalancer.
func (b evenBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	cb, err := kgo.NewConsumerBalancer(b, members)
	return cb, cb.MemberTopics(), err
}

// Balance implements kgo.ConsumerBalancerBalance.
func (b evenBalancer) Balance(cb *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	work, changes := map[string]int32{}, map[string]int32{}
	for topic, n := range topics {
		if topic == b.work {
			work[topic] = n
		} else {
			changes[topic] = n
		}
	}
	sticky := b.GroupBalancer.(kgo.ConsumerBalancerBalance)
	plan := sticky.Balance(cb, changes).(*kgo.BalancePlan)
	of := plan.AsMemberIDMap()
	for member, topics := range sticky.Balance(cb, work).(*kgo.BalancePlan).AsMemberIDMap() {
		if of[member] == nil {
			of[member] = map[string][]int32{}
		}
		maps.Copy(of[member], topics)
	}
	return plan
}
