// Package stories tells what may happen to a fleet of workers as stories, and sees how they end.
//
// A story is a text file in testdata: a comment that says in plain words what it is about, then a sentence a line, each of which happens when its turn comes; time
// goes on only where a sentence says so. The workers are real (internal/pipeline, changelog, control, flush, the ring and the registry's board of sink), on a Kafka in this
// process, in a bubble of its own time. Nodes, their copying, readers, the database and the cluster manager are the story's to move.
//
// Where a story ends its faults do: nodes answer, workers see and read, readers that still hold a value fill it in. When everything is at rest, every copy that a
// reader could read must equal its row. So a story need not say more; what else it expects, it says.
//
// TestRandomStories writes stories of its own, by seed. One that fails is printed whole: saved as a file of testdata it runs again.
//
// The sentences are listed in verbs (verbs_test.go) and conditions (expect_test.go).
package stories
