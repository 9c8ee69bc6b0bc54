// Package demo plays the whole pipeline on one machine and tells it step by step: rows are committed in databases, and
// every copy of their keys goes from the memcached nodes.
//
// The parts under show are the real ones, in this process: app.Feed and app.Worker, with a configuration as a user writes
// it. The demo is everybody else: the writers, the readers who fill the cache, the cluster manager who publishes ring and hot
// keys, and a checker. Readers and checker use gomemcache and write down for themselves which keys a row has, so that they
// share neither the wire client nor the mappings with what they check.
//
// It guarantees that each copy was looked at before its commit and after it, that the end compares every key ever used on
// every node with what the rows render then, and that Run returns nil only if nothing was stale and nothing was missing when
// it should have been there. Every wait is for something that a worker was seen to do, and has a limit whose error says what
// was awaited.
//
// Everything that it makes has names or numbers of its own and is removed again, whatever happens: databases, publication and
// slot, topics, group, registry keys, cached keys.
//
// Embedded, the same is played with nothing installed: embedded.go says what stands in for what.
//
// Caller: cmd/invalidator.
package demo
