// Package obs is what a running process shows: its log (slog, text for a terminal or JSON) and, where admin.listen is set,
// /metrics for Prometheus, /-/healthy, /-/ready and the routes of others, and its version.
//
// /-/healthy is liveness alone: a source in error, a dead node or a lag is a matter for metrics and alerts; a restart mends
// none of them. /-/ready is for whoever must know that a process serves before it goes on: a rollout, or a person.
package obs
