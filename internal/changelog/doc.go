// Package changelog is Kafka: the only package that imports a Kafka client. It holds the names, settings and record
// formats of every topic (docs/TOPICS.md), makes and checks them, produces changes, reads and writes the compacted state
// topic, parks records on the dead-letter topic, writes refresh requests, reads a topic for a person (ReadTopic) and ranges of it for a pass (Log), writes
// records again (Reissue), and is the workers' membership of their consumer group and the feeders' of theirs (Lead).
//
// It guarantees acks=all with an idempotent producer, that a record refused by the broker is an error and never dropped,
// and that a state record's key carries its writer's generation, so that a paused old writer cannot replace a newer one's.
// An existing topic is compared with what it should be and never altered. No protocol version is pinned.
//
// Errors that an operator sees carry a hint, and say by Retryable whether waiting helps: ConnectError, TopicError,
// ProduceError, RecordError. LogStartError is for a program: what was to be read has left the log.
//
// Callers: internal/feed (producer, positions, leadership), internal/gap (state, requests), internal/pipeline (group, partition state, dead letters, refresh requests), cmd.
package changelog
