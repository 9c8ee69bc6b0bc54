// Package schemas tests the reading of Avro against a real schema registry, Apicurio by ./dev registry, with the ids that it gives:
// Confluent's of four bytes, its own of eight, and those in headers; what a decoder says while the registry is down; and what a worker deletes on real nodes while it is away, slow or
// lacks an id.
package schemas
