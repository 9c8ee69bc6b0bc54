// Package schemas tests the reading of Avro against a real schema registry, Apicurio by ./dev registry, with the ids that it gives:
// Confluent's of four bytes, its own of eight, and those in headers; and what a decoder says while the registry is down.
package schemas
