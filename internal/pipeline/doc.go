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
// Every skip, undecided condition and key in shadow is counted, and named in the log not more often than a person can read.
package pipeline
