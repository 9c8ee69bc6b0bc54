// Package replay tests on a real broker, a real registry and real nodes what is done again, and why nothing of it is lost.
//
//   - Replays by hand (replay_test.go): a request on the control topic, its plan, what the workers delete again, what is told of it, and its end.
//   - Promotions (promotion_test.go, workers_test.go, withoutetcd_test.go): a primary dies with deletes that its replica never got, and a record names another
//     primary, on which no stale value may be left. Each says how long that took.
//   - What the pipeline cannot repair by itself is done when it is asked for (answered_test.go).
//   - A worker that leaves something out is caught (catches_test.go).
//
// The tests need the services of ./dev up and the build tag integration. Whatever they stop or kill is their own.
package replay
