// Package owed sums up what each node owes in all partitions of the log, and tells it: on the status topic, and in etcd, so that whoever takes a
// node back can wait until it is paid.
//
// The sum follows the state topic, which the owners of partitions write; so it also has what is owed where nobody is the owner at the moment.
// Of a partition, the records of the highest generation count. The owner of work partition hash(node) mod 64 tells of a node, so nobody does it twice; a
// worker that still takes itself for the owner changes nothing that another has written since.
//
// It never says that nothing is owed while a state that it has read, or could not read, says or may say otherwise. What a worker has not written down yet it cannot know:
// docs/TOPICS.md says for how long.
//
// Callers: internal/app.
package owed
