// Package page is what a person looks at: whether the cache is fresh, and why not; sources, partitions, nodes, what is done again, mappings, losses; where a
// key lives; and a playground that shows what a change gives. It only shows: what changes something is the command line's.
//
// Pages are rendered here and work without a script. The one script asks for the same page again when /events says that there is something new. Nothing is
// fetched from elsewhere, nothing is inline, and what comes from outside is escaped. The fleet is read once a second at most, for all who look, and
// not at all while nobody does.
package page
