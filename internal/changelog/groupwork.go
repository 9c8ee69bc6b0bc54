package changelog

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WorkPartition is the partition of Names.Work whose owner does the work of a name that belongs to no change partition.
func WorkPartition(name string) int32 { return partitionOf(name, WorkPartitions) }

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
