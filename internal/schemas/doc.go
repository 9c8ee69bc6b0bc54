// Package schemas fetches Avro schemas from a registry that speaks Confluent's API, and those that Apicurio numbers in its own
// way. It implements envelope.SchemaSource.
//
// It guarantees that a schema is fetched once and kept, that no call lasts longer than the timeout, and that the two kinds of
// failure are told apart: a registry that is away, slow, refuses us or answers nonsense is Unavailable, which is Retryable,
// since no record is to blame; a schema that the registry says it does not know is unavailable too for a while (a registry's
// own replicas lag), and then unknown, so that its records are parked rather than waited for without end.
//
// A schema that refers to others (name, subject and version, of Confluent's API) is given with those written into it. What one of
// them lacks is said by its name, and is waited for like a schema itself; a circle is refused (ErrCircle).
//
// It refuses JSON Schema, Protobuf, and references of Apicurio's own API.
//
// It holds no goroutine. Callers: internal/app (makes one a source), envelope's decoders.
package schemas
