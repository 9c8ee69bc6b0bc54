// Package changelog is Kafka: the only package that imports a Kafka client. It holds the names, settings and record
// formats of every topic (docs/TOPICS.md), makes and checks them, produces changes, reads and writes the compacted state
// topic, and parks records on the dead-letter topic.
//
// It guarantees acks=all with an idempotent producer, that a record refused by the broker is an error and never dropped,
// and that a state record's key carries its writer's generation, so that a paused old writer cannot replace a newer one's.
//
// Callers: internal/feed (producer, positions), internal/pipeline (consumer, partition state, dead letters), cmd.
package changelog
