// Package registry watches where the cluster manager publishes the ring record and the hot keys: etcd, or files.
//
// A Watcher's View is the last good one: a record that cannot be read or is not valid is reported and leaves the view as
// it was; losing etcd does too, and is reported until it is back. Epochs only rise: an older record, and another one under
// the same epoch, is reported and ignored. A hot entry that is not good stands alone: the others are taken, and it keeps
// what it said when it last was good. Each trouble is logged when it begins and when it is over.
//
// What was in force is remembered for as long as a copy placed under it may live: max_ttl after it was replaced, and ring.lag for clients
// that did not know yet. So are hot keys that left, or had more copies. What other workers saw is fed (Feed): a newer record than the
// registry shows comes into force, and an older one counts as a former one.
//
// Where an epoch is missing among those that are remembered, or nothing is known of before the first, a record may have been in force that nobody
// saw (Hole); View.Gained says which copies are to be flushed for it.
//
// View.Confirmed moves on, once a second with etcd, only while the registry holds exactly what the view says.
//
// Callers: internal/app starts one Watcher a process; internal/pipeline reads View for every change.
package registry
