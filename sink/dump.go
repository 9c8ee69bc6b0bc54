package sink

import "fmt"

// NodeStats is what a node says of itself (stats, stats settings). Counters go up from its start.
type NodeStats struct {
	Pid       int64  // its process; another one, or another Start: it was restarted since
	Start     int64  // of its process, Unix seconds. A warm restart (-e) keeps it, with all items and their CAS values
	Running   bool   // its LRU crawler is at work: a dump would be refused, or hang the thread that it is asked for on
	CmdGet    uint64 // keys that were asked for
	CmdSet    uint64 // values that were written, or refused: fills
	GetMisses uint64 // keys that were asked for and not there. One that won a lease counts as a hit
	CurrItems uint64 // items, of which some may have expired
	Moved     uint64 // items that it has moved in its memory: each has a new, higher CAS value since, as if it had been written
	CAS       bool   // items have CAS values: it does not run with -C
}

// BusyError says that a node must not be asked for a dump now. It is asked again later.
type BusyError struct {
	Node string
	Why  string // empty: its LRU crawler is at work, for another dump or for the node itself
}

func (e *BusyError) Error() string {
	why := e.Why
	if why == "" {
		why = "its LRU crawler is at work (stats: lru_crawler_running)"
	}
	return fmt.Sprintf("node %s cannot dump its keys now: %s", e.Node, why)
}

// NoDumpError says that a node can never be dumped as it is run: asking again is of no use.
type NoDumpError struct {
	Node string
	Why  string // and what mends it
}

func (e *NoDumpError) Error() string {
	return fmt.Sprintf("node %s cannot dump its keys: %s", e.Node, e.Why)
}

// VoidError says that a dump did not come to a clean end: what it showed is not all that there is. Another one may.
type VoidError struct {
	Node string
	Err  error
}

func (e *VoidError) Error() string {
	return fmt.Sprintf("the dump of node %s is void: %s", e.Node, e.Err)
}

func (e *VoidError) Unwrap() error { return e.Err }
