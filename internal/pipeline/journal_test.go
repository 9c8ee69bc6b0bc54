package pipeline

import (
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
)

// The lines that a state record takes are its own: it is encoded while the partition goes on noting.
func TestKeptLinesStayAsTheyWere(t *testing.T) {
	now := time.Now()
	j := newJournal(new(atomic.Uint64), 30*time.Second, time.Hour)
	line := JournalLine{At: now.Unix(), Epoch: 1, Mappings: "m", Lanes: []LaneSpan{{sink.Live, 5, 7}}}
	if err := j.restore(now, []JournalLine{line}, nil); err != nil {
		t.Fatal(err)
	}
	kept, _, _ := j.kept()
	for l := range j.all() {
		l.span(sink.Live, 2, 9)
	}
	if len(kept) != 1 || kept[0].Lanes[0] != (LaneSpan{sink.Live, 5, 7}) {
		t.Errorf("what was kept became %v", kept)
	}
}
