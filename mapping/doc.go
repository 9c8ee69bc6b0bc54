// Package mapping is the teams' language: YAML files (docs/MAPPINGS.md) that say which keys a row feeds, compiled into a
// plan for each table, and applied to a row change.
//
// It guarantees that both images of a row are rendered, so that a change that moves a row from key A to key B gives A and
// B; that a value which is absent, unclear, or null without a default is never rendered as text: that template is skipped, by
// name, and every other template of the row still gives its keys; that one file's mistake disables that file alone.
//
// A condition (when) is about the change, asked once, with three truths: what the log leaves out counts as true unless the
// rest decides it, and is told in Result.Undecided, so that no delete is lost to it. Its syntax is expr-lang/expr's; it is
// evaluated here, exactly for numbers of any size, on the columns of the plan. Measured: 160 ns for changed(a, b), 245 to
// 430 ns for more, and no allocation, where expr's VM and cel-go take 500 to 890 ns and five (docs/DESIGN.md, Libraries).
//
// Keys that no row gives come from writers: a raw template's column, or a logical message with the prefix "cache". Their
// pool is looked up at run time, and what nobody claims is skipped by name.
//
// A Truncate gives the keys that need no row, whatever a condition says, and names the pools of all other templates: those that have
// to be flushed and those that on_truncate leaves as they are. A pool is flushed whole, since a row that nobody has seen may have
// fed any key of it; raw templates concern every pool of their file. Keys in shadow concern none.
//
// Result owns the memory of what it holds: a Key's text is good until Reset, and CloneKeys makes keys that last. Plain
// templates, conditions and each lists allocate nothing once a Result has room (TestKeysOfPlainTemplatesAllocateNothing).
//
// It refuses what it cannot render the same from every source: floats and whole JSON documents in a key, a first segment
// that is not literal, a filter of a type that it cannot take (docs/FILTERS.md), a pool that another file claims, an unknown
// or doubled field. Errors read file:line:col: what is wrong (hint).
//
// A file's own tests run against its own mappings (File.RunTests), so that what one team adds never breaks another's.
//
// Set.Reload gives the set that comes after one in force: a file that fails, or takes what another has in force, stays as it
// last was, and every other file goes in.
//
// The tools' own questions: Set.Lint (what a reviewer would ask), Set.LintTables (the files against tables as databases describe
// them, or topics show them), Diff (two sets by key family, and what the caches need after a merge), ParseRow (a change typed by hand), JSONSchema
// (a file's structure, for editors; one corpus in testdata/schema goes through it and the loader).
//
// It knows no network and no Kafka. A Set is immutable and safe for concurrent use; it names itself by a fingerprint of
// all its files.
//
// Callers: internal/pipeline and cmd explain (plans), internal/feed (which columns a slim record keeps), cmd mappings,
// internal/app (check).
package mapping
