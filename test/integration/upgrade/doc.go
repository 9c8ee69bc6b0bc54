// Package upgrade runs the binary of an earlier commit and today's side by side in one fleet, on a real database, a real broker and real
// nodes: first one takes over from the other, then the other from the one, while rows change, and neither leaves a stale copy. What one
// owes is paid by the other, from the state that it left.
//
// The tests need the services of ./dev up, the build tag integration, and a clone that has the earlier commit or can fetch it.
package upgrade
