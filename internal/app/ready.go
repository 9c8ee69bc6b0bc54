package app

import (
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

// admin is a process's admin listener.
func admin(c config.Admin, r prometheus.Gatherer, ready *obs.Readiness, more ...obs.Route) obs.Admin {
	return obs.Admin{Listen: c.Listen, Metrics: r, Ready: ready.Lines, PProf: c.PProf, Routes: more}
}
