package app

import (
	"context"
	"fmt"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/owed"
	"invalidator/sink/registry"
)

// tellOwed has this worker tell what the nodes of its work partitions owe, until stop is called, which waits for its end.
func (w *Worker) tellOwed(ctx context.Context, self string, state *changelog.StateStore, out *changelog.Writer, status string, ring watchedRing) (p *owed.Publisher, stop func(), err error) {
	o := owed.Options{
		Group: w.Config.Kafka.Group, Worker: self, State: state, Log: w.Log,
		Say: func(ctx context.Context, node string, record []byte) error {
			return out.Write(ctx, status, node, record)
		},
		Nodes: func() []string { return ring.View().Topology.Nodes() },
	}
	letGo := func() {}
	if e := w.Config.Cache.Ring.Etcd; e != nil {
		c, err := etcdConfig(e)
		if err != nil {
			return nil, nil, err
		}
		keys := registry.NewOwedKeys(c, e.OwedPrefix)
		o.Keys, letGo = keys, keys.Close
	}
	p = owed.NewPublisher(o)
	if err := w.Registry.Register(p); err != nil {
		letGo()
		return nil, nil, fmt.Errorf("registering metrics of what nodes owe: %w", err)
	}
	end := inBackground(context.WithoutCancel(ctx), p.Run) // it goes on while the process drains
	return p, func() { end(); letGo() }, nil
}

func etcdConfig(e *config.Etcd) (registry.EtcdConfig, error) {
	t, err := tlsConfig("cache.ring.etcd.tls", e.TLS)
	return registry.EtcdConfig{
		Endpoints: e.Endpoints, RingKey: e.Key, HotPrefix: e.HotPrefix,
		Username: e.User, Password: e.Password.Reveal(), TLS: t,
	}, err
}
