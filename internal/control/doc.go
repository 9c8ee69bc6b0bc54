// Package control follows the control topic for a worker, and keeps its order: which requests there are, which plans, jobs and cancels count, and what of it a
// partition has yet to act on (docs/REPLAY.md, 4).
//
// A Follower reads the topic from its start into a State, and then what comes. Every worker has one. The State tells the pipeline of plans (pipeline.Orders) and the
// conductor of flushes of what was asked for. A topic that was made again begins anew. What cannot be read is counted and passed over, but for a plan: a partition
// acts on nothing behind a plan that its worker does not understand.
//
// A Clerk makes the plan of each replay that was asked for, or refuses it, and says when it has ended. It is the owner of work partition hash("control") mod 64. Two of them
// at once are harmless: of an id the first plan counts, and the first result.
//
// It refuses to plan a window that the log does not reach, since what is lost would be passed over; what is written of a replay is for people, and what is done is what
// the partitions' states say.
//
// Callers: internal/app. It knows Kafka, and no memcached.
package control
