// Package mapping is the teams' language: YAML files (docs/MAPPINGS.md) that say which keys a row feeds, compiled into a
// plan for each table, and applied to a row change.
//
// It guarantees that both images of a row are rendered, so that a change that moves a row from key A to key B gives A and
// B; that a value which is absent, unclear, or null without a default is never rendered as text: that template is skipped, by
// name, and every other template of the row still gives its keys; that one file's mistake disables that file alone.
//
// It refuses what it cannot render the same from every source: floats and whole JSON documents in a key, a first segment
// that is not literal, a filter of a type that it cannot take (docs/FILTERS.md), a pool that another file claims, an unknown
// or doubled field. Errors read file:line:col: what is wrong (hint).
//
// A file's own tests run against its own mappings (File.RunTests), so that what one team adds never breaks another's.
//
// It knows no network and no Kafka. A Set is immutable and safe for concurrent use; it names itself by a fingerprint of
// all its files.
//
// Callers: internal/pipeline and cmd explain (plans), internal/feed (which columns a slim record keeps), cmd mappings.
package mapping
