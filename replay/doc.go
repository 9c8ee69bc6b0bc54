// Package replay is the language in which deletes are asked for again: a window of the log for a shard, a node, a ring range, a pool or a mapping, and
// flushes of keys that no row derives.
//
// Requests are records on the control topic, so that every worker sees them, they survive restarts, and who asks needs
// Kafka alone. The first record of an id wins, which makes a request idempotent. A replay by hand has a plan, which fixes its partitions and offsets once; flushes
// are answered by jobs. What comes of them is on the status topic. A change of the ring has neither request nor plan: each owner of a partition takes its window
// from its own journal and reports under epoch/<a>-<b>.
//
// Here are the formats of these records and their strict decoding: an unknown version, kind or field is an error, and the
// record is not acted on. internal/control follows requests and makes plans, internal/pipeline acts on plans, internal/flush runs jobs.
//
// The package knows Kafka's records (internal/changelog) and positions (cdc), and no memcached.
package replay
