// Package memcache is the wire client: it implements sink.Deleter over memcached's meta protocol (pipelined quiet
// deletes, `md key q`, and stale marks, `md key q I T30`, closed by `mn`) and, for proxies and old servers that speak only
// the classic one, over gomemcache.
//
// What memcached does, as the conformance suite in sink/memcachetest shows it on the real server: HD is silent under q,
// NF is shown, and both are success; any line other than these and MN makes the answers of that batch unattributable, so the
// batch is sent again on a fresh connection, one unquiet answer a key; a key over 250 bytes never
// reaches the wire, and one with a byte of 0x00 to 0x20 or 0x7f only in base64 (`md key b q`): the item is that of the decoded bytes,
// so that a key without such a byte goes as it is, whichever way clients write it.
//
// A few connections a node, each with one batch in flight; a batch grows with what is queued and goes out at once when the
// connection is idle. Every exchange has a deadline; a connection is closed after any timeout, short write or unexpected
// line, and every key without an answer is queued again, before what was queued since. Only a connection that stands takes
// from the queue, so a node that has no room for all of them is served by those that it took; an idle one is closed for
// others to have its place. A connection first asks for an MN, so that a node that does not speak meta is never handed a
// delete; the log and NodeState.LastError say so, and it is asked again with back-off.
//
// A node's queue is bounded in bytes, which count until the answer: Delete waits while it is full. Nodes share nothing: each
// has its queue and its goroutines, so a dead one slows no other. A node is made by the first delete for its address and kept
// until Run ends, whether or not a ring names it: what it owes is tried until then. A queued delete is not merged with an
// equal one; twice is harmless.
//
// A stale mark goes the same way in everything, with three ways to become a delete: the classic protocol, a time outside
// sink.MinStale and sink.MaxStale (T0 would take the item's expiry away), and a node or proxy that answered it, alone, with an error.
//
// It refuses (a *sink.RefusedError through sink.Waiter) a key that sink.CheckMetaKey refuses, one that would need base64 under the
// classic protocol or at a node that does not know that flag, and one that the node itself answers with memcached's text for a bad key. Everything else is tried until it succeeds: through a proxy too NOT_FOUND is
// success, so a proxy that answers it for a delete that it only queued must not stand before a node.
//
// Callers: internal/pipeline deletes, internal/app runs the client and reads Nodes for metrics and status.
package memcache
