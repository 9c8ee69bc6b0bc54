// Package replay re-issues deletes: a window of the log for a shard that was promoted, for a node, a ring range, a pool or
// a mapping; and flushes slices of keys that no row derives.
//
// Requests are records on the control topic, so that every worker sees them, they survive restarts, and who asks needs
// Kafka alone. The first record of an id wins, which makes a request idempotent. What comes of them is on the status
// topic. A replay by hand has a plan, which fixes its partitions and offsets once; a promotion or a move has neither
// request nor plan: each owner of a partition takes its window from its own journal and reports under
// promotion/<epoch>/<shard>.
//
// Here are the formats of these records and their strict decoding: an unknown version, kind or field is an error, and the
// record is not acted on. Promotions, windows, the replayer and the flusher join them here.
//
// The package knows Kafka's records (internal/changelog) and positions (cdc), and no memcached.
package replay
