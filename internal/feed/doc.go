// Package feed runs one cdc.Feeder a source: encodes each change, produces it, and moves the source's position.
//
// The invariant: a position is saved to the state topic only when every record before it is acknowledged by the broker,
// and confirmed to the source only after it is saved. A crash at any point sends a suffix again and skips nothing.
//
// A source in error stands alone: it is reported with its hint and tried again with back-off, and the others go on. Each
// source holds at most a fixed number of bytes of unacknowledged records; beyond that its feeder waits.
package feed
