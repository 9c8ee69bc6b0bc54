package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster are brokers of a test's own, each with a second door for those who come through a proxy.
type Cluster struct {
	t       testing.TB
	Brokers []*Broker
	Doors   []string // what the brokers tell who came through one of these doors
}

// doorSettings come after the others, and win. Of three brokers two are enough, to write and to lead.
const doorSettings = `node.id=%d
controller.quorum.voters=%s
listeners=PLAINTEXT://%s,CONTROLLER://%s,DOOR://%s
advertised.listeners=PLAINTEXT://%s,DOOR://%s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,DOOR:PLAINTEXT
default.replication.factor=%d
min.insync.replicas=%d
offsets.topic.replication.factor=%d
transaction.state.log.replication.factor=%d
transaction.state.log.min.isr=%d
share.coordinator.state.topic.replication.factor=%d
share.coordinator.state.topic.min.isr=%d
`

// NewCluster starts n brokers with the settings and from the files of ./dev's, and ends them with the test. through makes the proxy of a
// broker's door: it is told where the broker listens, and says where the proxy does.
func NewCluster(t testing.TB, n int, through func(door string) (proxy string)) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var addrs, controllers, doors, voters []string
	for i := range n {
		addrs, controllers, doors = append(addrs, FreeAddr(t)), append(controllers, FreeAddr(t)), append(doors, FreeAddr(t))
		c.Doors = append(c.Doors, through(doors[i]))
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, controllers[i]))
	}
	insync := n/2 + 1
	for i := range n {
		b := newBroker(t, addrs[i], fmt.Sprintf(doorSettings, i+1, strings.Join(voters, ","), addrs[i], controllers[i], doors[i],
			addrs[i], c.Doors[i], n, insync, n, n, insync, n, insync))
		c.Brokers = append(c.Brokers, b)
		b.Launch()
	}
	c.AwaitAll()
	return c
}

// AwaitAll waits until every broker answers, and knows all others.
func (c *Cluster) AwaitAll() {
	c.t.Helper()
	for _, b := range c.Brokers {
		b.awaitAnswer()
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
		if err != nil {
			c.t.Fatal(err)
		}
		defer cl.Close()
		Await(c.t, "all brokers to be in the cluster", func() (bool, string) {
			ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
			defer cancel()
			all, err := kadm.NewClient(cl).ListBrokers(ctx)
			return len(all) == len(c.Brokers), fmt.Sprint(len(all), " brokers, ", err)
		})
	}
}
