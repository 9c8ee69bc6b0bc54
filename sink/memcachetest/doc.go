// Package memcachetest is an in-process memcached: for unit tests, and for the nodes of `demo --embedded`.
//
// It speaks what a client of this project says to a node: classic get, gets, set, add, cas, delete, flush_all, version, stats
// and quit; meta mg, ms, md and mn, with the leases (mg … N30), stale marks (md … I T30) and keys in base64 (md … b) of memcached
// 1.6.18; lru_crawler metadump, with what a reader that pauses does: a second dump hangs its thread, and so does who asks for a key in the
// part of the hash table that is being written, and with it a quarter of all connections; its error texts and its limit of 250 bytes a key. What it answers is held against a real memcached by one
// conformance suite that runs on both. It never evicts, counts no slabs and has no binary protocol, so it is no place to measure memory.
//
// Server.Intercept makes it misbehave on chosen commands, and within a dump on chosen lines, so that a test can make any fault of the wire
// happen and then look at what the node holds. Process is a real memcached, or a nutcracker before one, for tests that need one of their own.
package memcachetest
