// Package gap keeps what of a log was lost to us: a durable record on the state topic, an event on the status topic, and the
// requests to flush what may be stale for it. A feeder's gap and a worker's have one format here.
//
// Life of a gap: open, from its record; accepted, once a person (or the source's on_gap) has decided; passed, once what the
// decision asks for is done. Each stage has a record of its own, under a key of its own, so that no writer can undo what
// another wrote: a paused old feeder that records its gap again neither opens it anew nor takes an acceptance away.
//
//	gap/<id>            what was lost       by who met it, again at each meeting
//	gap-accepted/<id>   the decision        by `invalidator gap accept`, or by who met it under on_gap: flush
//	gap-passed/<id>     what was done       by who goes on; once done is set, the gap is closed
//
// The same gap met again is the same record: its id follows from its source and the place where it begins. A gap that is
// met again after it was closed is another one, and gets a number behind its id.
//
// A gap that stops its source is passed by the feeder, which alone knows from where it can go on; a gap that stops nothing
// is passed by whoever accepts it. Closed is not flushed: what was lost may be stale until the flush that was asked for has its result, on the status
// topic, which whoever lists gaps adds (Case.Flush). A closed gap stays listed for Keep, then the next process that starts removes it.
//
// It refuses what it does not wholly understand: a record of an unknown version, or with an unknown field, is an error that
// names its place. Callers: internal/feed, internal/app.
package gap
