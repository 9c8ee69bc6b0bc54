package app

import (
	"context"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/internal/config"
	"invalidator/internal/obs"
)

// What a process waits for while it starts, and while it ends: lines of /-/ready.
const (
	waitsForTopics   = "it waits for Kafka, to make its own topics (the log says what is wrong)"
	waitsForMappings = "it waits for its first mappings: those of the folder, or the last good ones of the state topic (the log says what is wrong)"
	waitsForRing     = "it waits for its first ring record: the registry's, or the last good one of the state topic (the log says what is wrong)"
	ends             = "it ends: what was begun is finished"
)

// Metrics is where a process's metrics stand: a *prometheus.Registry.
type Metrics interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// serveAdmin serves a process's admin listener until ctx ends.
func serveAdmin(ctx context.Context, c config.Admin, r prometheus.Gatherer, ready *obs.Readiness, log *slog.Logger, more ...obs.Route) error {
	tls, err := adminTLS(c.TLS, log)
	if err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && !net.ParseIP(host).IsLoopback() && host != "localhost" && c.ReadToken.Reveal() == "" && (c.TLS == nil || c.TLS.ClientCA == "") {
		log.Warn("the admin listener can be reached from other machines, and whoever reaches it may read: set admin.read_token or admin.tls.client_ca, or have the network admit only who should", "listen", c.Listen)
	}
	return obs.ServeAdmin(ctx, obs.Admin{
		Listen: c.Listen, Metrics: r, Ready: ready.Lines, PProf: c.PProf, Routes: more, TLS: tls, Log: log,
		Gate: obs.Gate{
			Certificate: c.TLS != nil && c.TLS.ClientCA != "",
			Tokens:      func() []string { return []string{c.ReadToken.Reveal(), c.Token.Reveal()} },
		},
	})
}
