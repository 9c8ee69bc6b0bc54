// Package feed runs one cdc.Feeder a source: encodes each change, produces it, and moves the source's position.
//
// The invariant: a position is saved to the state topic only when every record before it is acknowledged by the broker,
// and confirmed to the source only after it is saved. A crash at any point sends a suffix again and skips nothing. The
// tracker holds the proof.
//
// A source in error stands alone: it is reported with its hint and tried again with back-off, and the others go on. A
// record that Kafka refuses ends the run, and the next one starts from the saved position; one that is too large is then
// written slim. No record is passed over, so a row's records reach its partition in the order of the log, with whole
// suffixes repeated. Each source holds at most a fixed number of bytes of unacknowledged records; beyond that, and while
// Kafka is away, its feeder waits.
//
// Each run of a source takes the next generation after the highest on the state topic and removes the older ones once it
// has saved a position of its own. Of two processes that feed the same source, the one that started later wins, and the
// other only writes changes again; choosing one leader among several is not done here. A gap that a run meets because the
// other has moved on meanwhile is none: the next run begins where the other came to.
//
// Callers: internal/app, which makes the service's own topics first (changelog.EnsureTopics).
package feed
