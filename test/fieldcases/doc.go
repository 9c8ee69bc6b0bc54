// Package fieldcases holds tests of faults that people met with change records, from a record's bytes to the keys that it must
// delete: Debezium's and Maxwell's, as they stand on a topic. Names begin with the numbers under which such faults are collected.
// Those that only a server shows are in test/integration, with the same numbers.
package fieldcases
