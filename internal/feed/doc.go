// Package feed leads sources: it runs a source's cdc.Feeder while this process leads it, encodes each change, produces it, and
// moves the source's position.
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
// Of the processes that run a source, one leads (changelog.Lead) and the others stand by. Positions carry the leader's
// generation, and the highest counts: a leader that was stopped and wakes up writes changes again, at worst. A run begins only
// once the brokers confirm that this process leads; one under way goes on while they cannot be asked.
//
// What is lost is a gap (internal/gap), durable before anything passes it. One that no run can go over stops its source until
// it is accepted; pass says in which order it is passed, and why a crash at each step loses nothing. A loss inside a log that
// can be read on stops nothing, and every row of its tables counts as changed. A gap that a run meets because another
// process has moved the source on meanwhile is none.
//
// Callers: internal/app, which makes the service's own topics first (changelog.EnsureTopics).
package feed
