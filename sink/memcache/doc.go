// Package memcache is the wire client: it implements sink.Deleter over memcached's meta protocol (pipelined quiet
// deletes, `md key q`, closed by `mn`) and, for proxies and old servers that speak only the classic one, over gomemcache.
//
// What memcached does, as the conformance suite in sink/memcachetest shows it on the real server: HD is silent under q,
// NF is shown, and both are success; any line other than NF and MN makes the answers of that batch unattributable, so the
// batch is sent again on a fresh connection, one unquiet answer a key; a key with a byte of 0x00 to 0x20 or 0x7f, or over
// 250 bytes, never reaches the wire.
//
// A few connections a node, each with one batch in flight; a batch grows with what is queued and goes out at once when the
// connection is idle. Every read and write has a deadline; a connection is closed after any timeout, short write or
// unexpected line, and every key without an answer is sent again. A node's queue is bounded.
package memcache
