package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"invalidator/internal/config"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// registryTimeout is how long a command at a terminal waits for the ring.
const registryTimeout = 5 * time.Second

// ReadRegistry reads the ring and the hot keys once, from where the configuration says.
func ReadRegistry(ctx context.Context, c *config.Config, log *slog.Logger) (*sink.Topology, *sink.HotKeys, error) {
	w, err := newWatcher(c.Cache.Ring, registry.Options{}, log)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Ready():
		v := w.View()
		cancel()
		<-ended
		return v.Topology, v.Hot, nil
	case err := <-ended:
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no ring within %s from %s", registryTimeout, ringHome(c.Cache.Ring))
		}
		return nil, nil, err
	}
}

func ringHome(r config.Ring) string {
	if r.Etcd != nil {
		return "etcd at " + strings.Join(r.Etcd.Endpoints, ", ") + ", key " + r.Etcd.Key
	}
	return r.File
}
