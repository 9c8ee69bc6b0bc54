package pipeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
)

// foldAfter is how long closed minutes keep their seconds at least.
const foldAfter = 3 * time.Minute

// journal says what of a partition was issued when, and under which snapshot: by us and by owners before us. Its lines lie in pages: a
// page a minute, then, once they are old, a page an hour. The page of the minute that runs lies in the state record, each other one in a
// record of its own, under the page's name.
type journal struct {
	revision *atomic.Uint64 // the ledger's too
	fold     time.Duration  // minutes older than this are folded
	keep     time.Duration  // lines older than this are dropped

	mu struct { // a leaf
		sync.Mutex
		line    *JournalLine // that is written to; nil: none
		under   *Snapshot    // of line, or one that is named alike
		latest  int64        // of all lines that were begun here
		minutes map[int64]*page
		hours   map[int64]*page
		write   map[string]*page // changed since they were last given
		drop    []string
		tidied  int64 // the minute in which it was last tidied

		// The greatest ring epoch and hot keys' revision that anything was issued under, by us.
		epoch, revision int64
	}
}

// page is the lines of a minute or an hour, in no order. start is in seconds of Unix time.
type page struct {
	name   string
	start  int64
	lines  []*JournalLine
	closed bool // it lies in a record of its own
}

const (
	minute = int64(time.Minute / time.Second)
	hour   = int64(time.Hour / time.Second)

	minuteName = "2006-01-02T15:04"
	hourName   = "2006-01-02T15"
)

func newJournal(revision *atomic.Uint64, window, keep time.Duration) *journal {
	j := &journal{revision: revision, fold: max(foldAfter, window+foldAfter/2), keep: keep}
	j.mu.minutes, j.mu.hours, j.mu.write = map[int64]*page{}, map[int64]*page{}, map[string]*page{}
	return j
}

// note says that something of offset was issued in a lane, or acknowledged for the last time.
func (j *journal) note(now time.Time, s *Snapshot, lane sink.Lane, offset int64) {
	at := now.Unix()
	j.mu.Lock()
	defer j.mu.Unlock()
	l := j.mu.line
	if l == nil || at > l.At || j.mu.under != s {
		l = j.lineAt(at, s)
	}
	if l.span(lane, offset, offset) {
		j.revision.Add(1)
	}
}

// lineAt finds or begins the line of a second. A clock that goes back goes on with the latest: a later time is safe. It is called under
// the lock.
func (j *journal) lineAt(at int64, s *Snapshot) *JournalLine {
	id := s.id()
	j.mu.epoch, j.mu.revision = max(j.mu.epoch, id.epoch), max(j.mu.revision, id.revision)
	at = max(at, j.mu.latest)
	p := pageOf(j.mu.minutes, at-at%minute, minuteName)
	p.closed = false
	i := slices.IndexFunc(p.lines, func(l *JournalLine) bool { return l.At == at && l.snapshot() == id })
	if i < 0 {
		i = len(p.lines)
		p.lines = append(p.lines, &JournalLine{At: at, Epoch: id.epoch, HotRevision: id.revision, Mappings: id.mappings})
	}
	l := p.lines[i]
	if !s.View.Local { // what a file held says nothing of the clients' hosts
		l.Confirmed = max(l.Confirmed, unixSeconds(s.View.Confirmed))
	}
	j.mu.line, j.mu.under, j.mu.latest = l, s, at
	return l
}

// pageOf finds or begins a page.
func pageOf(pages map[int64]*page, start int64, layout string) *page {
	p := pages[start]
	if p == nil {
		p = &page{name: time.Unix(start, 0).UTC().Format(layout), start: start}
		pages[start] = p
	}
	return p
}

// restore takes in what earlier owners left: the lines of their state record, and their pages.
func (j *journal) restore(now time.Time, lines []JournalLine, records []changelog.JournalRecord) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	this := now.Unix() - now.Unix()%minute
	for i := range lines {
		l := &lines[i]
		p := pageOf(j.mu.minutes, l.At-l.At%minute, minuteName)
		p.add(l)
		if p.closed = p.start < this; p.closed {
			j.mu.write[p.name] = p // the next state record is ours, and does not have it
		}
	}
	for _, r := range records {
		pages, layout, size := j.mu.minutes, minuteName, minute
		at, err := time.Parse(minuteName, r.Name)
		if err != nil {
			pages, layout, size = j.mu.hours, hourName, hour
			at, err = time.Parse(hourName, r.Name)
		}
		if err != nil {
			return fmt.Errorf("the journal record %s: its name is neither a minute nor an hour", r.Name)
		}
		lines, err := parsePage(r.Value)
		if err != nil {
			return fmt.Errorf("the journal record %s: %w", r.Name, err)
		}
		p := pageOf(pages, at.Unix()-at.Unix()%size, layout)
		p.closed = p.start < this
		for i := range lines {
			p.add(&lines[i])
		}
	}
	return nil
}

// journalPage is a page as JSON.
type journalPage struct {
	V     int           `json:"v"` // 1
	Lines []JournalLine `json:"lines"`
}

func parsePage(b []byte) ([]JournalLine, error) {
	var p journalPage
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	if p.V != 1 {
		return nil, fmt.Errorf("version %d is not known (a newer version of the service wrote it)", p.V)
	}
	return p.Lines, nil
}

func (p *page) encode() []byte {
	b, err := json.Marshal(journalPage{V: 1, Lines: p.inOrder()})
	if err != nil {
		panic(err) // numbers and texts
	}
	return b
}

func (p *page) inOrder() []JournalLine {
	lines := make([]JournalLine, 0, len(p.lines))
	for _, l := range p.lines {
		lines = append(lines, *l)
	}
	slices.SortFunc(lines, func(a, b JournalLine) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.HotRevision, b.HotRevision), cmp.Compare(a.Mappings, b.Mappings))
	})
	return lines
}

// add takes a line in; what another owner issued in the same second under the same snapshot joins it.
func (p *page) add(l *JournalLine) {
	for _, have := range p.lines {
		if have.At == l.At && have.snapshot() == l.snapshot() {
			have.fold(l)
			return
		}
	}
	p.lines = append(p.lines, l)
}

// addMinute takes all lines of a minute in, one a snapshot, as of the minute's last second.
func (p *page) addMinute(m *page) {
	for _, l := range m.lines {
		c := *l
		c.At = m.start + minute - 1
		c.Lanes = slices.Clone(l.Lanes)
		p.add(&c)
	}
}

// tidy closes minutes that are over, folds those that are old into their hours, and drops the hours that no copy can date from.
func (j *journal) tidy(now time.Time) {
	this := now.Unix() - now.Unix()%minute
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.tidied == this {
		return
	}
	j.mu.tidied, j.mu.line = this, nil // a line is begun in a page that stands
	for start, p := range j.mu.minutes {
		switch {
		case time.Unix(start+minute, 0).Add(j.fold).Before(now):
			h := pageOf(j.mu.hours, start-start%hour, hourName)
			h.addMinute(p)
			delete(j.mu.minutes, start)
			delete(j.mu.write, p.name)
			j.mu.drop = append(j.mu.drop, p.name)
			j.mu.write[h.name] = h
		case start < this && !p.closed:
			p.closed = true
			j.mu.write[p.name] = p
		default:
			continue
		}
		j.revision.Add(1)
	}
	for start, h := range j.mu.hours {
		if time.Unix(start+hour, 0).Add(j.keep).Before(now) {
			delete(j.mu.hours, start)
			delete(j.mu.write, h.name)
			j.mu.drop = append(j.mu.drop, h.name)
			j.revision.Add(1)
		}
	}
}

// kept gives the lines for the state record, and the pages that were closed or changed since it was last called.
func (j *journal) kept() (open []JournalLine, records []changelog.JournalRecord, drop []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	open = []JournalLine{}
	for _, start := range slices.Sorted(maps.Keys(j.mu.minutes)) {
		if p := j.mu.minutes[start]; !p.closed {
			open = append(open, p.inOrder()...)
		}
	}
	for i := range open {
		open[i].Lanes = slices.Clone(open[i].Lanes) // what is noted from now on changes them in place
	}
	for _, name := range slices.Sorted(maps.Keys(j.mu.write)) {
		records = append(records, changelog.JournalRecord{Name: name, Value: j.mu.write[name].encode()})
	}
	clear(j.mu.write)
	drop, j.mu.drop = j.mu.drop, nil
	return open, records, drop
}

// greatest is the greatest ring epoch and hot keys' revision that anything was issued under.
func (j *journal) greatest() (epoch, revision int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.epoch, j.mu.revision
}

// issuesUnder notes that nothing is issued under a lower epoch from now on, here or by a next owner.
func (j *journal) issuesUnder(epoch int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if epoch > j.mu.epoch {
		j.mu.epoch = epoch
		j.revision.Add(1)
	}
}

// last is the time of the latest line; zero: there is none.
func (j *journal) last() (at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		if t := time.Unix(l.At, 0); t.After(at) {
			at = t
		}
	}
	return at
}

// confirmed is the latest moment at which the registry is known to have held a record of an epoch of at most a, by who issued anything under one. Zero: there
// is none.
func (j *journal) confirmed(a int64) (at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		if l.Epoch <= a && l.Confirmed > 0 && l.Confirmed > at.Unix() {
			at = time.Unix(l.Confirmed, 0)
		}
	}
	return at
}

// lowest is the lowest offset of which anything was issued, or had its last acknowledgement, at since or later.
func (j *journal) lowest(since time.Time) (offset int64, any bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		if l.At >= since.Unix() && (!any || l.lowest() < offset) {
			offset, any = l.lowest(), true
		}
	}
	return offset, any
}

// leastEpoch is the least epoch under which anything was issued; 0: nothing was.
func (j *journal) leastEpoch() (least int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		if least == 0 || l.Epoch < least {
			least = l.Epoch
		}
	}
	return least
}

// between are the offsets of which anything was issued, or had its last acknowledgement, in [since, to].
func (j *journal) between(since, to time.Time) (ranges [][2]int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		if l.At < since.Unix() || l.At > to.Unix() {
			continue
		}
		for _, s := range l.Lanes {
			ranges = append(ranges, [2]int64{s.Lowest, s.Highest + 1})
		}
	}
	return ranges
}

// issued is a range of offsets of which some may have been issued under a set of mappings.
type issued struct {
	lowest, highest int64 // both in it
	mappings        string
}

// mappings are the sets of mappings under which offsets of [from, to) were issued, by anybody.
func (j *journal) mappings(from, to int64) (sets []issued) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		for _, s := range l.Lanes {
			if s.Highest < from || s.Lowest >= to {
				continue
			}
			i := slices.IndexFunc(sets, func(x issued) bool {
				return x.mappings == l.Mappings && s.Lowest <= x.highest+1 && s.Highest >= x.lowest-1
			})
			if i < 0 {
				sets = append(sets, issued{s.Lowest, s.Highest, l.Mappings})
				continue
			}
			sets[i].lowest, sets[i].highest = min(sets[i].lowest, s.Lowest), max(sets[i].highest, s.Highest)
		}
	}
	return sets
}

// all are the lines of all pages. It is called under the lock.
func (j *journal) all() iter.Seq[*JournalLine] {
	return func(yield func(*JournalLine) bool) {
		for _, pages := range []map[int64]*page{j.mu.minutes, j.mu.hours} {
			for _, p := range pages {
				for _, l := range p.lines {
					if !yield(l) {
						return
					}
				}
			}
		}
	}
}
