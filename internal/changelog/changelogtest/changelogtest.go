// Package changelogtest starts a fake Kafka for tests: it speaks the real protocol, in this process.
package changelogtest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
)

// Cluster is a fake Kafka with the service's own topics.
type Cluster struct {
	*kfake.Cluster
	Options changelog.Options
	Names   changelog.Names
}

// Start runs a cluster of one broker, on a network in memory where extra does not say otherwise, so that it can live in a
// synctest bubble, and makes the service's own topics. It is closed when the test ends.
func Start(t testing.TB, extra ...kfake.Opt) *Cluster {
	t.Helper()
	var net kfake.VirtualNetwork
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(net.Listen)}, extra...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cluster := &Cluster{c, changelog.Options{Brokers: c.ListenAddrs(), Dial: net.DialContext}, changelog.NamesFor("")}
	adm := cluster.Admin(t)
	if _, err := changelog.EnsureTopics(context.Background(), adm, changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// Admin returns an admin client that is closed when the test ends.
func (c *Cluster) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	cl, err := c.Options.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}
