// Package registry watches where the cluster manager publishes the ring record and the hot keys: etcd, or files.
//
// A Watcher's View is the last good one: a record that cannot be read or is not valid is reported and leaves the view as
// it was; losing etcd does too, and is reported until it is back. Epochs only rise: an older record, and another one under
// the same epoch, is reported and ignored. A hot entry that is not good stands alone: the others are taken, and it keeps
// what it said when it last was good. Each trouble is logged when it begins and when it is over.
//
// View.Confirmed moves on, once a second with etcd, only while the registry holds exactly what the view says.
//
// Callers: internal/app starts one Watcher a process; internal/pipeline reads View for every change.
package registry
