// Package harness puts a whole pipeline on the real services for an integration test: databases of the test's own on MySQL,
// MariaDB and Postgres, memcached nodes of its own, a ring in etcd, and feeders and workers as processes of the built
// binary, which a test may kill.
//
// Everything has a name of the test's own and is removed when it ends. Nothing here waits for time: a test awaits a
// condition, and fails naming it.
package harness
