// Package replay tests replays by hand against a real broker and real nodes: a request on the control topic, its plan, what the workers delete again, what is told of it, and its end.
package replay
