package app

import (
	"context"
	"fmt"
	"log/slog"

	"invalidator/cdc"
	"invalidator/internal/config"
	"invalidator/sink/memcache"
)

// checkNodes asks each node which memcached it is.
func checkNodes(ctx context.Context, c *config.Config, nodes []string, log *slog.Logger) (out []Finding) {
	o, err := memcacheOptions(c)
	if err != nil {
		return failed("nodes", err)
	}
	client := memcache.New(o, log)
	var old []string
	for _, node := range nodes {
		v, err := client.Version(ctx, node)
		switch {
		case err != nil: // A node that is down now is no reason not to start.
			out = append(out, Finding{string(cdc.SeverityWarning), "node " + node, fmt.Sprintf("does not answer: %v", err)})
		case v.HoldsClients():
			old = append(old, node)
		}
	}
	if len(old) > 0 {
		out = append(out, Finding{string(cdc.SeverityWarning), "nodes", fmt.Sprintf("%s memcached 1.6.18 or an older one: where the worker that flushes a pool stands still while such a node dumps its "+
			"keys, as its host is frozen or cut off, the node's clients wait until that connection is gone (upgrade to 1.6.19 or later): %s", plural(len(old), "node runs", "nodes run"), someOf(old))})
	}
	return out
}
