// Package integration proves the pipeline on real servers: a committed row change deletes every copy of every key that the
// row feeds, whatever readers do meanwhile and whatever is killed.
//
// A world (world_test.go) is a shop on one or more databases, memcached nodes under a ring, readers that fill the cache by
// the rules that readers are given, writers, and a trail of all that happened to each key. Its checker compares every copy
// on every node with what its row renders.
//
//   - TestProperty lets all of them loose at random while workers and feeders are killed.
//   - TestCheckerCatches leaves one thing out of the pipeline and must see the checker find it.
//   - TestMainJob, TestKillBetweenRounds, TestBadInput, TestFieldCases and TestDebeziumTopics tell one story each.
//
// The tests need the services of ./dev up and the build tag integration.
package integration
