package changelog

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// needed are the requests that the service lives by and the lowest version of each that it can use: record batches with
// headers came with Produce 3 and Fetch 4.
var needed = []struct {
	key kmsg.Key
	min int16
}{
	{kmsg.Produce, 3}, {kmsg.Fetch, 4}, {kmsg.ListOffsets, 1}, {kmsg.Metadata, 1},
	{kmsg.OffsetCommit, 2}, {kmsg.OffsetFetch, 1}, {kmsg.FindCoordinator, 0}, {kmsg.JoinGroup, 0},
	{kmsg.SyncGroup, 0}, {kmsg.Heartbeat, 0}, {kmsg.CreateTopics, 0}, {kmsg.InitProducerID, 0}, {kmsg.DescribeConfigs, 0},
}

// VersionError says which requests broker and client have no version of in common.
type VersionError struct{ Ranges []string } // "Produce: broker 3..13, client 0..2, needed 3"

func (e *VersionError) Error() string {
	return "broker and client have no protocol version in common: " + strings.Join(e.Ranges, "; ")
}

// checkVersions compares what one broker speaks with what this client does. A broker that does not say (an error) is left
// to the caller's own request to judge.
func checkVersions(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = defaultClientID, "1"
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || len(resp.ApiKeys) == 0 {
		return nil
	}
	broker := make(map[int16]kmsg.ApiVersionsResponseApiKey, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		broker[k.ApiKey] = k
	}
	pinned, _ := cl.OptValue(kgo.MaxVersions).(*kversion.Versions)
	var bad []string
	for _, n := range needed {
		ours := kmsg.RequestForKey(n.key.Int16()).MaxVersion()
		if pinned != nil {
			p, ok := pinned.LookupMaxKeyVersion(n.key.Int16())
			if !ok {
				p = -1
			}
			ours = min(ours, p)
		}
		theirs, ok := broker[n.key.Int16()]
		if ok && theirs.MinVersion <= ours && n.min <= ours && n.min <= theirs.MaxVersion {
			continue
		}
		of := "none"
		if ok {
			of = fmt.Sprintf("%d..%d", theirs.MinVersion, theirs.MaxVersion)
		}
		mine := "none"
		if ours >= 0 {
			mine = fmt.Sprintf("0..%d", ours)
		}
		bad = append(bad, fmt.Sprintf("%s: broker %s, client %s, needed %d", n.key.Name(), of, mine, n.min))
	}
	if bad == nil {
		return nil
	}
	return &VersionError{bad}
}
