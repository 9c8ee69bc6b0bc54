package demo

import (
	"context"
	"fmt"
	"time"
)

// Services says where the real services listen: those of ./dev up, whose accounts are app and cdc.
type Services struct {
	Kafka, MySQL, MariaDB, Postgres, Etcd string // host:port
	Memcached                             [4]string
}

// onServices sets the stage on real services, with a database, topics and a registry prefix of the demo's own.
func onServices(ctx context.Context, id string, at Services) (s *stage, err error) {
	if s, err = newStage(id); err != nil {
		return s, err
	}
	s.brokers = []string{at.Kafka}
	s.settle, s.updates = time.Second, 20*time.Millisecond
	for i, addr := range at.Memcached {
		s.nodes = append(s.nodes, newNode(fmt.Sprintf("m%d", i+1), addr, zones[i]))
	}
	s.later("the connections to memcached", func(context.Context) error { s.nodes.close(); return nil })
	if err := s.nodes.ping(); err != nil {
		return s, err
	}
	etcd, err := openEtcd(ctx, at.Etcd, "/demo-"+id+"/")
	if err != nil {
		return s, err
	}
	s.publisher = etcd
	s.later(etcd.about(), etcd.remove)
	name := "demo_" + id
	my, maria, pg := newMySQL("mysql", at.MySQL, name), newMySQL("mariadb", at.MariaDB, name), newPostgres(at.Postgres, name)
	for _, d := range []interface {
		database
		open(context.Context) error
	}{my, maria, pg} {
		s.databases = append(s.databases, d)
		s.later(d.about(), d.remove)
		if err := d.open(ctx); err != nil {
			return s, err
		}
	}
	s.intro = []string{"real services: Kafka at " + at.Kafka + ", " + etcd.about()}
	return s, nil
}

// zones are the nodes'.
var zones = [4]string{"a", "b", "a", "b"}
