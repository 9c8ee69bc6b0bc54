// Package registry watches where the cluster manager publishes the ring record and the hot keys: etcd, or files.
//
// A Watcher's View is the last good one: a record that cannot be read or is not valid is reported and leaves the view as
// it was; losing etcd does too, and is reported until it is back. Epochs only rise: an older record is reported and ignored.
//
// Callers: internal/app starts one Watcher a process; internal/pipeline reads View for every change.
package registry
