package changelog

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaderBalancer gives the one partition of the leaders' topic to one member. A member that has it keeps it as long as it is
// there, whoever joins: to move a running leader costs a pause and gains nothing for its source. Where nobody has it, the
// member with the highest hash of group and name gets it. So each source has an order of members of its own, and the sources
// of a member that has died are spread over all that are left.
type leaderBalancer struct{ group, self string }

func (leaderBalancer) ProtocolName() string { return "invalidator-leader-1" }

// IsCooperative: the leader works on while others join.
func (leaderBalancer) IsCooperative() bool { return true }

func (b leaderBalancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.UserData, m.Generation = 3, topics, []byte(b.self), generation
	for topic, partitions := range current {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = topic, partitions
		m.OwnedPartitions = append(m.OwnedPartitions, owned)
	}
	return m.AppendTo(nil)
}

func (leaderBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return kgo.ParseConsumerSyncAssignment(assignment)
}

func (b leaderBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	cb, err := kgo.NewConsumerBalancer(b, members)
	return cb, cb.MemberTopics(), err
}

// Balance implements kgo.ConsumerBalancerBalance.
func (b leaderBalancer) Balance(cb *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := cb.NewPlan()
	for topic := range topics {
		plan.AddPartition(b.choose(cb, topic), topic, leaderPartition)
	}
	// A new leader gets it only when the old one has said that it is done.
	plan.AdjustCooperative(cb)
	return plan
}

// choose returns the member that has the topic's partition. Of two that both say so, one woke up late: the later generation
// counts. Where nobody has it, the highest hash wins.
func (b leaderBalancer) choose(cb *kgo.ConsumerBalancer, topic string) *kmsg.JoinGroupResponseMember {
	var best *kmsg.JoinGroupResponseMember
	var bestOwner int32
	var bestHash []byte
	cb.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		owner := int32(-1)
		for _, o := range meta.OwnedPartitions {
			if o.Topic == topic && slices.Contains(o.Partitions, leaderPartition) {
				owner = max(0, meta.Generation)
			}
		}
		sum := sha256.Sum256([]byte(b.group + "\x00" + string(meta.UserData)))
		if best == nil || owner > bestOwner || owner == bestOwner && bytes.Compare(sum[:], bestHash) > 0 {
			best, bestOwner, bestHash = m, owner, sum[:]
		}
	})
	return best
}
