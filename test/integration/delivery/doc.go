// Package delivery proves on real servers that every copy is deleted, whatever becomes of nodes, workers, brokers, links and the
// registry meanwhile.
//
// A world (world_test.go) is a table in MySQL, memcached nodes in pairs of primary and replica behind proxies, the ring records and the
// hot-key registry as clients see them, late, writers that commit small transactions, readers that fill copies by the rules that readers are
// given, and a trail of what happened to each key. Its checker compares every copy on every node with what its row renders.
//
//   - TestChaos lets all of them loose while faults come by a plan that follows from a seed (faults_test.go), among them those that are a
//     cluster manager's doing: promotions of replicas that lag, nodes that are replaced, that go and come back, resizes, replicas that are seeded,
//     epochs that are left out. ./dev chaos run runs it for longer.
//   - TestCheckerCatches leaves one thing out of the delivery and must see the checker find it.
//   - The others tell one story each.
//
// The tests need the services of ./dev up and the build tag integration. Whatever they kill is their own.
package delivery
