package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// pageBook is a state topic as far as a journal needs one.
type pageBook map[string][]byte

func (b pageBook) take(j *journal) []JournalLine {
	open, records, drop := j.kept()
	for _, name := range drop {
		delete(b, name)
	}
	for _, r := range records {
		b[r.Name] = r.Value
	}
	return open
}

func (b pageBook) names() (names []string) {
	for name := range b {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (b pageBook) records() (rs []changelog.JournalRecord) {
	for name, value := range b {
		rs = append(rs, changelog.JournalRecord{Name: name, Value: value})
	}
	return rs
}

// journalTest is a journal at a time, and snapshots to note under.
type journalTest struct {
	*journal
	book  pageBook
	now   time.Time
	under *Snapshot
}

func newJournalTest(t *testing.T) *journalTest {
	return &journalTest{
		newJournal(new(atomic.Uint64), 30*time.Second, 2*time.Hour), pageBook{},
		time.Date(2026, 11, 30, 10, 5, 58, 0, time.UTC), &Snapshot{Mapper: setOf(t, usersFile), View: view(t, plainRing, nil)},
	}
}

func (j *journalTest) at(d time.Duration, lane sink.Lane, offset int64) {
	j.now = j.now.Add(d)
	j.note(j.now, j.under, lane, offset)
}

// lines are what is in all pages, in short.
func (j *journalTest) lines() (out []string) {
	for l := range j.all() {
		text := time.Unix(l.At, 0).UTC().Format("15:04:05")
		for _, s := range l.Lanes {
			text += fmt.Sprintf(" %s %d-%d", s.Lane, s.Lowest, s.Highest)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// DELIVERY 7: a line a second with each lane's lowest and highest offset; the minute that runs is in the state record, closed ones are
// records of their own, old ones fold into their hour, and go when no copy can date from them.
func TestJournalIsKeptAndFolded(t *testing.T) {
	j := newJournalTest(t)
	j.at(0, sink.Live, 10)
	j.at(0, sink.Live, 12)
	j.at(0, sink.Debts, 3)
	j.at(time.Second, sink.Live, 11)
	j.tidy(j.now)
	if open := j.book.take(j.journal); len(open) != 2 || len(j.book) != 0 {
		t.Fatalf("%v open, records %v", open, j.book.names())
	}
	j.at(time.Second, sink.Live, 13) // 10:06:00
	j.tidy(j.now)
	if open := j.book.take(j.journal); len(open) != 1 || !slices.Equal(j.book.names(), []string{"2026-11-30T10:05"}) {
		t.Fatalf("%v open, records %v", open, j.book.names())
	}
	if got, want := j.lines(), []string{"10:05:58 live 10-12 debts 3-3", "10:05:59 live 11-11", "10:06:00 live 13-13"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	before := j.revision.Load()
	j.now = j.now.Add(5 * time.Minute)
	j.tidy(j.now)
	if j.revision.Load() == before {
		t.Error("nobody would write what was folded")
	}
	if open := j.book.take(j.journal); len(open) != 0 || !slices.Equal(j.book.names(), []string{"2026-11-30T10"}) {
		t.Fatalf("%v open, records %v", open, j.book.names())
	}
	if got, want := j.lines(), []string{"10:05:59 live 10-12 debts 3-3", "10:06:59 live 13-13"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if lines, err := parsePage(j.book["2026-11-30T10"]); err != nil || len(lines) != 2 || lines[0].Lanes[0] != (LaneSpan{sink.Live, 10, 12}) {
		t.Errorf("the record has %v, %v", lines, err)
	}
	j.now = j.now.Add(3 * time.Hour)
	j.tidy(j.now)
	if j.book.take(j.journal); len(j.book) != 0 || len(j.lines()) != 0 {
		t.Errorf("records %v, lines %q", j.book.names(), j.lines())
	}
}

// DELIVERY 7: a change of the snapshot begins a new line, also in the same second, and folding keeps one for each.
func TestJournalLineASnapshot(t *testing.T) {
	j := newJournalTest(t)
	j.at(0, sink.Live, 1)
	first := j.under
	j.under = &Snapshot{Mapper: first.Mapper, View: &registry.View{Topology: first.View.Topology, Hot: first.View.Hot, Confirmed: j.now}}
	j.at(0, sink.Live, 2) // the registry was confirmed: the same snapshot
	j.under = &Snapshot{Mapper: setOf(t, mailFile), View: first.View}
	j.at(0, sink.Live, 3)
	j.under = first
	j.at(0, sink.Live, 4)
	if got, want := j.lines(), []string{"10:05:58 live 1-4", "10:05:58 live 3-3"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	j.now = j.now.Add(time.Hour)
	j.tidy(j.now)
	if got, want := j.lines(), []string{"10:05:59 live 1-4", "10:05:59 live 3-3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for l := range j.all() {
		if (l.Confirmed == 0) != (l.Lanes[0].Lowest == 3) {
			t.Errorf("%+v", l)
		}
	}
	sets := j.mappings(4, 9)
	if len(sets) != 1 || sets[0].mappings != first.Mapper.Fingerprint() {
		t.Errorf("offset 4 was issued under %v", sets)
	}
	if sets := j.mappings(0, 4); len(sets) != 2 {
		t.Errorf("offset 3 may have been issued under %v", sets)
	}
	if sets := j.mappings(5, 9); len(sets) != 0 {
		t.Errorf("offset 5 was issued under %v", sets)
	}
}

// DELIVERY 7: the lines of all owners count, whichever record they lie in, and are not written twice for ever.
func TestJournalOfSeveralOwners(t *testing.T) {
	a := newJournalTest(t)
	a.at(0, sink.Live, 10)
	a.at(2*time.Second, sink.Live, 20) // 10:06:00
	a.tidy(a.now)
	open := a.book.take(a.journal)
	b := newJournalTest(t)
	b.now, b.under = a.now.Add(10*time.Second), a.under
	b.book = a.book
	if err := b.restore(b.now, open, a.book.records()); err != nil {
		t.Fatal(err)
	}
	b.at(0, sink.Live, 15)
	a.at(time.Second, sink.Live, 21) // it does not know yet
	b.tidy(b.now)
	if got, want := b.lines(), []string{"10:05:58 live 10-10", "10:06:00 live 20-20", "10:06:10 live 15-15"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if open := b.book.take(b.journal); len(open) != 2 {
		t.Errorf("open %v", open)
	}
	b.now = b.now.Add(time.Minute)
	c := newJournalTest(t)
	c.now, c.book = b.now.Add(time.Minute), b.book
	bOpen, _, _ := b.kept()
	if err := c.restore(c.now, bOpen, append(b.book.records(), b.book.records()...)); err != nil { // by two owners under one name
		t.Fatal(err)
	}
	if got := c.lines(); !slices.Equal(got, b.lines()) {
		t.Errorf("got %q, want %q", got, b.lines())
	}
	if open := c.book.take(c.journal); len(open) != 0 || !slices.Equal(c.book.names(), []string{"2026-11-30T10:05", "2026-11-30T10:06"}) {
		t.Errorf("open %v, records %v: the last state's lines must not be lost with it", open, c.book.names())
	}
	c.now = c.now.Add(10 * time.Minute)
	c.tidy(c.now)
	c.book.take(c.journal)
	if got := c.book.names(); !slices.Equal(got, []string{"2026-11-30T10"}) {
		t.Errorf("records %v", got)
	}
}

// A clock that goes back never takes a line into the past: a replay would miss it.
func TestJournalOfAClockThatGoesBack(t *testing.T) {
	j := newJournalTest(t)
	j.at(0, sink.Live, 10)
	j.at(-time.Hour, sink.Live, 5)
	if got, want := j.lines(), []string{"10:05:58 live 5-10"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	j.now = j.now.Add(2 * time.Hour)
	j.tidy(j.now)
	j.book.take(j.journal)
	j.at(-100*time.Minute, sink.Live, 4) // its page is folded
	j.tidy(j.now.Add(time.Minute))
	if got, want := j.lines(), []string{"10:05:58 live 4-4", "10:05:59 live 5-10"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The lowest offset that was issued since a time.
func TestJournalLowest(t *testing.T) {
	j := newJournalTest(t)
	if _, any := j.lowest(time.Time{}); any {
		t.Error("nothing was issued")
	}
	j.at(0, sink.Live, 10)
	j.at(0, sink.Debts, 2)
	j.at(10*time.Second, sink.Live, 30)
	j.at(10*time.Second, sink.Live, 20)
	for back, want := range map[time.Duration]int64{0: 20, 10 * time.Second: 20, 19 * time.Second: 20, 20 * time.Second: 2} {
		if got, any := j.lowest(j.now.Add(-back)); !any || got != want {
			t.Errorf("since %s: %d, %v, want %d", back, got, any, want)
		}
	}
	if _, any := j.lowest(j.now.Add(time.Second)); any {
		t.Error("nothing is issued yet")
	}
}

// A line is an array that reads back as it was; what this version does not know is an error, never left out.
func TestJournalLineAsJSON(t *testing.T) {
	l := JournalLine{At: 1796032800, Epoch: 7, HotRevision: 51, Confirmed: 1796032799, Mappings: "9f2c", Lanes: []LaneSpan{{sink.Live, 4690, 4711}, {sink.Flush, 1, 2}}}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[1796032800,7,51,1796032799,"9f2c",["live",4690,4711],["flush",1,2]]`
	if string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
	var back JournalLine
	if err := json.Unmarshal(b, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(l) {
		t.Errorf("got %v, %v", back, err)
	}
	for _, bad := range []string{`{}`, `[1,2,3,4,"x"]`, `[1,2,3,4,5,["live",1,2]]`, `[1,2,3,4,"x",["warp",1,2]]`, `[1,2,3,4,"x",["live",1]]`, `[1,2,3,4,"x",7]`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("%s was read", bad)
		}
	}
	for _, bad := range []changelog.JournalRecord{{Name: "yesterday", Value: []byte(`{"v":1}`)}, {Name: "2026-11-30T10", Value: []byte(`{"v":2}`)}, {Name: "2026-11-30T10", Value: []byte(`{`)}} {
		if newJournalTest(t).restore(time.Now(), nil, []changelog.JournalRecord{bad}) == nil {
			t.Errorf("%s %s was read", bad.Name, bad.Value)
		}
	}
}

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
