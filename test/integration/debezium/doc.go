// Package debezium compares what reaches the caches by way of real Debezium with what reaches them by way of our own feeder:
// the same statements on the same database give the same keys, byte for byte, and where they do not, cdc/TYPES.md says why
// and this package names it.
//
// Each database is read by our feeder and by two connectors, one that writes JSON with a schema and one that writes it
// without, into topics of their own. A transaction has the same id on all of them, so that keys are compared statement by
// statement.
//
// What Debezium tells of tables that lose their rows, and where, has a test of its own.
//
// The tests run Kafka Connect themselves, by ./dev connect, which fetches the jars where they are missing (Java and Maven are
// needed). There is no Debezium connector for MariaDB here.
package debezium
