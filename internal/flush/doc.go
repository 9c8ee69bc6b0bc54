// Package flush deletes keys that are found on the nodes themselves, for what no row of the log derives (docs/REPLAY.md, 6).
//
// A Conductor answers the requests to flush that stand on the control topic: it makes jobs of them, and for each node of a job it sets a mark, has the node dump its keys,
// and deletes those that are meant and older than the mark, part by part, while a signal says that the database bears the misses. It is the owner of one work partition, so a
// fleet has one, which asks its group whether that still holds before each dump. What it does is on the topics: who takes over goes on with what is not done.
//
// It guarantees that a request is answered only when every copy that was there when the job began, and that it means, was deleted, marked stale, or changed since; on every node
// that a ring record of the last max_ttl names, also on one that was away meanwhile; that a key which was filled after a round's mark is left in that round; that a dump is never
// held back, and that no node is asked for two; that memory is bounded, however many keys a node has: candidates lie in one piece of 32 MiB, and what finds no room waits for the next dump.
//
// It refuses to delete while the load cannot be read, and to call a job done of which a node can never be dumped, or refused a key: its result names them.
//
// A Ring writes the requests that a change of the ring makes necessary, before a partition says that it has acted on it.
//
// Callers: internal/app. The package knows the records of the control topic (replay), rings and nodes (sink), and no Kafka: it declares the Log that it needs.
package flush
