package demo

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/cdc"
	"invalidator/internal/config"
	"invalidator/sink/memcachetest"
)

// embedded sets the stage inside this process. Everything between the row change and the delete on the wire is real.
func embedded(id string) (s *stage, err error) {
	if s, err = newStage(id); err != nil {
		return s, err
	}
	s.settle, s.updates = 200*time.Millisecond, 2*time.Millisecond
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return s, fmt.Errorf("starting the broker: %w", err)
	}
	s.later("the broker", func(context.Context) error { broker.Close(); return nil })
	s.brokers = broker.ListenAddrs()
	for i, zone := range zones {
		server, err := memcachetest.Listen("127.0.0.1:0")
		if err != nil {
			return s, fmt.Errorf("starting a memcached: %w", err)
		}
		n := newNode(fmt.Sprintf("m%d", i+1), server.Addr(), zone)
		s.nodes = append(s.nodes, n)
		s.later("memcached "+n.name, func(context.Context) error { n.client.Close(); server.Close(); return nil })
	}
	if s.publisher, err = newFiles(s.dir); err != nil {
		return s, err
	}
	s.databases = []database{
		newGenerator("mysql", cdc.MySQL, id), newGenerator("mariadb", cdc.MariaDB, id), newGenerator("postgres", cdc.Postgres, id),
	}
	s.newFeeder = func(c config.Source, log *slog.Logger) (cdc.Feeder, error) {
		return generatorFor(s.databases, c.Name, log)
	}
	s.intro = []string{
		"embedded: no service is used. In this process stand in",
		"  for the databases   a generator of the row changes that feeders read, over tables in memory",
		"  for Kafka           kfake, which speaks Kafka's protocol on " + s.brokers[0],
		"  for memcached       four small servers that speak its protocol, on loopback ports",
		"  for etcd            two files",
		"real are the feed, the envelopes, the mappings, the workers, the ring and the deletes on the wire",
	}
	return s, nil
}
