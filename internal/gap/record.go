package gap

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/replay"
)

// version is of the three records here. A gap of version 1 was a worker's alone.
const version = 2

// Gap is what was lost: the value under gap/<id>.
type Gap struct {
	V      int           `json:"v"`
	ID     string        `json:"id"`
	Source string        `json:"source"`
	Stops  bool          `json:"stops"`            // the source stands until it is accepted
	Range  *replay.Range `json:"range,omitempty"`  // a worker's: offsets of a partition; From -1: not known
	From   cdc.Position  `json:"from,omitzero"`    // a feeder's: where it begins; zero: at the log's beginning
	Until  cdc.Position  `json:"until,omitzero"`   // where it ends, where that is known beforehand, or where rows were lost last
	Tx     string        `json:"tx,omitempty"`     // the transaction, where it is one
	Time   time.Time     `json:"time,omitzero"`    // of its commit
	Tables []string      `json:"tables,omitempty"` // schema.table, or schema.* for a whole schema; none: all that the source includes
	Pools  []string      `json:"pools,omitempty"`  // to be flushed; none: no mapping names its tables
	Undone string        `json:"undone,omitempty"` // transactions that we handed over and that the server no longer has
	Why    string        `json:"why"`
	Hint   string        `json:"hint,omitempty"`
	Seen   time.Time     `json:"seen"`             // first
	Writer string        `json:"writer,omitempty"` // the one process that makes it longer; none: any does
	Last   time.Time     `json:"last,omitzero"`    // when rows were lost last, where that was more than once
	Times  int64         `json:"times,omitempty"`  // how often, as far as was written down: again after a crash counts; zero: once
}

// Acceptance is a decision: the value under gap-accepted/<id>.
type Acceptance struct {
	V     int       `json:"v"`
	ID    string    `json:"id"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
	Flush bool      `json:"flush"` // ask for a flush of the gap's pools
}

// Passage is what was done: the value under gap-passed/<id>.
type Passage struct {
	V        int          `json:"v"`
	ID       string       `json:"id"`
	To       cdc.Position `json:"to,omitzero"`        // from where the source goes on: the gap ends there
	Requests []string     `json:"requests,omitempty"` // for a flush, on the control topic
	Reissued int64        `json:"reissued,omitempty"` // records that were written again, since their transactions are undone
	Note     string       `json:"note,omitempty"`     // why nothing had to be done
	Begun    time.Time    `json:"begun"`
	Done     time.Time    `json:"done,omitzero"`   // zero: not all is done
	Times    int64        `json:"times,omitempty"` // the gap's, when it was passed: what was lost since is not in it
}

// State is where a gap stands in its life.
type State string

const (
	Open     State = "open"     // nobody has decided
	Accepted State = "accepted" // decided, and not passed yet, or longer again since
	Closed   State = "closed"   // passed: where a flush was asked for, that has a result of its own (Case.Flush)
)

// Case is a gap with what became of it.
type Case struct {
	Gap
	Acceptance *Acceptance `json:"accepted,omitempty"`
	Passage    *Passage    `json:"passed,omitempty"`

	// Flush is how it stands with the flush that was asked for: waiting, running or paused; done; or how else it ended. Empty: none was, or it is not known. It stands on no
	// record of the gap: who lists gaps, and reads the control and status topics, fills it in.
	Flush string `json:"flush,omitempty"`
}

// State says where it stands.
func (c *Case) State() State {
	switch {
	case c.Passage != nil && !c.Passage.Done.IsZero() && c.Passage.Times >= c.Times:
		return Closed
	case c.Acceptance != nil:
		return Accepted
	}
	return Open
}

// FeederID is the id of a gap of a source's log that begins at from: `shop/4f2a91c0`. What more tells two gaps at one place
// apart (a transaction, tables) follows.
func FeederID(source string, from cdc.Position, more ...string) string {
	place, err := json.Marshal(from)
	if err != nil {
		panic(err) // a struct of texts and numbers
	}
	h := sha256.New()
	h.Write(place)
	for _, m := range more {
		h.Write([]byte{0})
		h.Write([]byte(m))
	}
	return source + "/" + hex.EncodeToString(h.Sum(nil)[:4])
}

// WorkerID is the id of a gap of a partition that ends before offset to.
func WorkerID(topic string, partition int32, to int64) string {
	return topic + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(to, 10)
}

// numbered is the n-th gap of an id, from 1.
func numbered(id string, n int) string {
	if n == 1 {
		return id
	}
	return id + "-" + strconv.Itoa(n)
}

// The first parts of the keys.
const (
	prefix         = "gap"
	acceptedPrefix = "gap-accepted"
	passedPrefix   = "gap-passed"
)

func key(prefix, id string) string {
	return changelog.StateKey(append([]string{prefix}, strings.Split(id, "/")...)...)
}

// TableNames are tables as a Gap has them. nil stays nil: all.
func TableNames(tables []cdc.TableID) []string {
	var names []string
	for _, t := range tables {
		if t.Table == "" {
			t.Table = "*"
		}
		names = append(names, t.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// v1 is a worker's gap as it was first written.
type v1 struct {
	V         int       `json:"v"`
	Source    string    `json:"source"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	From      int64     `json:"from"`
	To        int64     `json:"to"`
	Why       string    `json:"why"`
	Seen      time.Time `json:"seen"`
}

func decodeGap(value []byte) (Gap, error) {
	var old v1
	if err := changelog.DecodeStrict(value, 1, &old); err == nil {
		return Gap{
			V: version, ID: WorkerID(old.Topic, old.Partition, old.To), Source: old.Source, Why: old.Why, Seen: old.Seen,
			Range: &replay.Range{Topic: old.Topic, Partition: old.Partition, From: old.From, To: old.To},
		}, nil
	}
	return decode[Gap]("a gap", value)
}

// decode reads a record of id, strictly.
func decode[T any](what string, value []byte) (T, error) {
	var v T
	if err := changelog.DecodeStrict(value, version, &v); err != nil {
		return v, fmt.Errorf("decoding %s: %w", what, err)
	}
	return v, nil
}
