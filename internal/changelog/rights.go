package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc"
)

// Rights are what our user needs of the brokers.
type Rights struct {
	User   string              // as the ACLs name it, without "User:"; empty: not known here
	Reads  []string            // topics that are read alone
	Writes []string            // topics that are read and written
	Makes  []TopicSpec         // topics that are made where they are missing
	Groups []string            // consumer groups that are joined
	Others func(t string) bool // which of Reads somebody else made: of those the settings are only looked at; nil: none
}

// CheckRights asks the brokers what our user may do, and names what is missing, with the command that grants it. It changes nothing:
// what no broker tells is tried dry. Where there is no authorizer all is allowed, and nothing is found.
func CheckRights(ctx context.Context, cl *kgo.Client, r Rights) ([]Finding, error) {
	adm := kadm.NewClient(cl)
	names := slices.Concat(r.Reads, r.Writes)
	for _, s := range r.Makes {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, nil
	}
	there, _, err := topicsAsked(ctx, cl, names)
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, name := range names {
		t := there[name]
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.TopicAuthorizationFailed): // which hides whether it exists
			all = append(all, r.missing(name, r.needs(name), "it is hidden from us"))
			continue
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			if i := slices.IndexFunc(r.Makes, func(s TopicSpec) bool { return s.Name == name }); i >= 0 {
				f, err := r.creating(ctx, adm, r.Makes[i])
				if err != nil {
					return nil, err
				}
				all = append(all, f...)
			}
			continue
		}
		allowed := kadm.DecodeACLOperations(t.AuthorizedOperations)
		if len(allowed) == 0 { // an old broker
			continue
		}
		may := func(op kadm.ACLOperation) bool { return slices.Contains(allowed, op) }
		if lacks := slices.DeleteFunc(r.needs(name), may); len(lacks) > 0 {
			all = append(all, r.missing(name, lacks, ""))
		}
	}
	for _, g := range r.Groups {
		f, err := r.joining(ctx, cl, g)
		if err != nil {
			return nil, err
		}
		all = append(all, f...)
	}
	return all, nil
}

func (r Rights) needs(topic string) []kadm.ACLOperation {
	ops := []kadm.ACLOperation{kadm.OpDescribe, kadm.OpDescribeConfigs}
	if slices.Contains(r.Reads, topic) || slices.Contains(r.Writes, topic) {
		ops = append(ops, kadm.OpRead)
	}
	if slices.Contains(r.Writes, topic) {
		ops = append(ops, kadm.OpWrite)
	}
	return ops
}

// missing is a warning where only a check needs what is missing.
func (r Rights) missing(topic string, ops []kadm.ACLOperation, why string) Finding {
	f := Finding{Severity: cdc.SeverityError, Topic: topic, What: "our user may not " + opsText(ops, " or ") + " it", Hint: r.grant(ops, "--topic "+topic)}
	if r.Others != nil && r.Others(topic) && slices.Equal(ops, []kadm.ACLOperation{kadm.OpDescribeConfigs}) {
		f.Severity = cdc.SeverityWarning
		why = "whether it is compacted, and how long it is kept, is not known"
	}
	if why != "" {
		f.What += ": " + why
	}
	return f
}

func (r Rights) grant(ops []kadm.ACLOperation, on string) string {
	user := r.User
	if user == "" {
		user = "…"
	}
	return fmt.Sprintf("kafka-acls.sh --add --allow-principal 'User:%s' --operation %s %s", user, opsText(ops, " --operation "), on)
}

// GrantRead is the command that lets a user read a topic; an empty user is left for the reader to fill in.
func GrantRead(user, topic string) string {
	return Rights{User: user}.grant([]kadm.ACLOperation{kadm.OpDescribe, kadm.OpRead}, "--topic "+topic)
}

var opNames = map[kadm.ACLOperation]string{
	kadm.OpRead: "Read", kadm.OpWrite: "Write", kadm.OpCreate: "Create", kadm.OpDescribe: "Describe", kadm.OpDescribeConfigs: "DescribeConfigs",
}

func opsText(ops []kadm.ACLOperation, between string) string {
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = opNames[op]
	}
	return strings.Join(names, between)
}

// creating tries dry to make a topic.
func (r Rights) creating(ctx context.Context, adm *kadm.Client, s TopicSpec) ([]Finding, error) {
	res, err := adm.ValidateCreateTopics(ctx, s.Partitions, -1, nil, s.Name)
	if err != nil {
		return nil, fmt.Errorf("trying whether topic %s may be made: %w", s.Name, err)
	}
	if err := res[s.Name].Err; errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return []Finding{r.missing(s.Name, []kadm.ACLOperation{kadm.OpCreate}, "it does not exist yet, and is made at start")}, nil
	}
	return nil, nil // what else is wrong with it is told when it is made
}

// joining tries dry whether a group may be joined: a beat of a member that there is not needs the same right.
func (r Rights) joining(ctx context.Context, cl *kgo.Client, group string) ([]Finding, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, "invalidator-check", -1
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if !errors.Is(err, kerr.GroupAuthorizationFailed) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("asking for consumer group %s: %w", group, err)
		}
		return nil, nil // unknown member, or no coordinator yet: not a matter of rights
	}
	return []Finding{{Severity: cdc.SeverityError, What: "our user may not Read consumer group " + group + ": nothing can be read in it",
		Hint: r.grant([]kadm.ACLOperation{kadm.OpRead}, "--group "+group)}}, nil
}
