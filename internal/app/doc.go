// Package app wires the parts into the processes that cmd/invalidator starts: a feeder process, a worker process, and the
// checks before either. It is the only package that knows them all.
//
// Life: what others lean on starts first and ends last. A process ends when its context does, having drained and committed,
// or when its configuration turns out to be wrong. Everything else (a broker that is away, a source in error, a mapping
// file that does not load, an unreachable etcd) is reported and waited for.
//
// While it runs, a process follows the mappings folder (reload.go) and says on the state topic what it is (process.go),
// where fleet.go reads it.
package app
