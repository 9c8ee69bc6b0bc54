// Package obs is what a running process shows: its log (slog, text for a terminal or JSON) and, where admin.listen is set,
// /metrics for Prometheus and /healthz, and its version.
//
// Health is liveness alone: a source in error, a dead node or a lag is a matter for metrics and alerts; a restart mends
// none of them.
package obs
