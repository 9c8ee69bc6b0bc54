// Package obs is what a running process shows: its log (slog, text for a terminal or JSON) and, where admin.listen is set,
// /metrics for Prometheus, /healthz and /livez, and its version.
//
// /livez is liveness alone: a source in error, a dead node or a lag is a matter for metrics and alerts; a restart mends
// none of them. /healthz turns red where a person must act, for whoever alerts on that and has no metrics.
package obs
