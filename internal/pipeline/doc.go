// Package pipeline is the worker: a member of the consumer group that turns the change topics into deletes.
//
// A row's way: record -> decode (cdc/envelope, only the columns that the plan wants) -> keys (mapping) -> copies (sink,
// under one Snapshot) -> nodes -> round two, settle after the last acknowledgement -> watermark -> partition state, then
// offset commit.
//
// It guarantees that an offset is committed only when every change below it has had its rounds acknowledged on every copy,
// while the partition is still owned; that a record which cannot be decoded is parked on the dead-letter topic before the
// watermark passes it, and the partition stops if parking fails; that a record which cannot be decoded for now (its schema's
// registry is away) is waited for, while the rounds of what was issued go on; that what a partition holds in memory is bounded.
//
// What is done with a key is its template's to say: its copies are deleted or marked stale, in every round; a refresh is asked for
// on the refresh topic after the last round, and the change is finished when the request is written; in shadow nothing is done.
// A truncate says no row: keys that need none are deleted like others, and for each pool of the other templates a flush is asked for,
// unless its mapping ignores truncates. The requests are written before the record is taken into the window, so that the watermark
// passes it after them, and they are tried for ever. Their ids follow from the record, so that the next owner of the partition, after a
// crash between them and the commit, repeats the same requests, of which the first counts. What could go wrong with that: a topic made
// again has the same offsets (so the record's time is in the id); a reload between two tries asks for other pools (each is asked for once
// more); a job empties a table every second (each truncate is a request: it says since when it asks, and whoever answers may take one
// flush for all that were asked before it began); one TRUNCATE of several tables is several records (several requests, likewise).
//
// What has to be done again from the log is a debt of the partition (ledger), which moves with it and is paid by a pass over the log: what a
// node missed, what a pool that was paused, a storm or a stopped template owes, what a change of the ring moved (epoch.go), and what an
// operator asked for (orders.go). docs/DELIVERY.md and docs/REPLAY.md are the contract, with the proofs beside the code.
//
// Every skip, undecided condition and key in shadow is counted, and named in the log not more often than a person can read.
package pipeline
