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
// # The wire
//
// A few connections a node, each with one batch in flight; a batch grows with what is queued and goes out at once when the
// connection is idle. Every exchange has a deadline; a connection is closed after any timeout, short write or unexpected
// line, and every key without an answer is queued again, before what was queued since. Only a connection that stands takes
// from the queue, so a node that has no room for all of them is served by those that it took; an idle one is closed for
// others to have its place. A connection says its token first, where there is one, and then asks for an MN: what does not know that is asked
// for its version, and spoken to in the classic protocol until the connection ends, as NodeState.Protocol and the log say. A name
// is looked up for each connection, each of its addresses is tried, and it is looked up again each 30 s: a connection to an address that
// the name has no longer carries no further batch.
//
// # The queue
//
// Each node has a queue of a lane a sink.Lane, each bounded in bytes, which count until the answer; the queues of all nodes together
// are bounded too. Lower lanes are served first, but while others wait an eighth of each batch is theirs, by turns. The same
// copy twice in one lane goes as one while it is not written: as a delete if either is one. What is on a socket, or was, stands
// for nothing later. To look for its like costs a unique key 36 ns beside 164 of its way through the queue (the best of twelve short
// runs of BenchmarkCoalescing), and 3 to 7 % of the CPU time of its way to the in-process server and back (best and median of twelve of BenchmarkServer with
// two connections); a key that is there four times is sent once.
//
// # On and off
//
// A node is on, or off the live path, as docs/DELIVERY.md says; each node's keeper (keeper.go) decides and tells it. Nodes share nothing but the bound of
// their bytes: each has its queue and its goroutines, so a dead one slows no other. A node is made by the first delete or probe for its
// address and kept until Run ends. Client.Retain says which a ring names: of another no connection is kept, and once it is off none is tried (retain.go).
//
// A stale mark goes the same way in everything, with three ways to become a delete: the classic protocol, a time outside
// sink.MinStale and sink.MaxStale (T0 would take the item's expiry away), and a node or proxy that answered it, alone, with an error.
//
// It refuses (a *sink.RefusedError through sink.Waiter) a key that sink.CheckMetaKey refuses, one that would need base64 under the
// classic protocol or at a node that does not know that flag, and one that the node itself answers with memcached's text for a bad key, or again and
// again with an error while it deletes others (suspect.go). Everything else is tried until it succeeds or the node is off. NOT_FOUND is success, through a proxy too: before one that answers it
// for a delete that it only wrote down, Options.VerifyNotFound has it proven.
//
// # What a node holds
//
// Stats, Mark and Dump ask a node on connections of their own, whether it is on or off, and DeleteIf deletes in lane sink.Flush what still has the CAS
// value that a dump has shown. That makes a flush, which internal/flush leads. A delete that compares is quiet too, and numbered (`md key q C17 O3`), so that an
// EX says which one it is of; it never goes as one with another. A dump is a danger to the node's clients: as long as nobody reads it, memcached up to
// 1.6.18 has them wait, and so does any that is asked for a second one; and one that is asked just when its hash table begins to grow may never answer
// anybody again. So a dump is read by a goroutine that waits for nothing, which rather ends it than keeps more than 16 MiB, and is asked for neither while
// another is under way nor near the number of items at which the table grows.
//
// Callers: internal/pipeline deletes, internal/flush flushes, internal/app runs the client and reads Nodes for metrics and status.
package memcache
