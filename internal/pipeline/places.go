package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

const (
	// mostPlaces bounds the bytes of the places of a worker's partitions.
	mostPlaces = 8 << 20
	// placesOfPage is how many keys, and how many records, a page has room for.
	placesOfPage = 1 << 10
	pageBytes    = placesOfPage * 3
	// placesKept is how much longer they are kept than a change of the ring reaches back that is seen at once.
	placesKept = 15 * time.Second
)

// places remembers where on the ring the keys of the records lie that a partition took lately, so that a pass for a change of the ring decodes those alone
// of which a key may have moved: for one shard of 64 that is a record in 50. Of what it does not know, everything may have.
type places struct {
	keep time.Duration // for so long at least, if there is room
	held *atomic.Int64 // bytes of all of the worker's partitions

	mu struct { // a leaf
		sync.Mutex
		pages []*placesPage // in the order of offsets
	}
}

// placesPage is those of some records after one another, all mapped and placed alike.
type placesPage struct {
	mapper mapping.Mapper
	ring   *sink.Topology
	last   time.Time // when it was written to
	from   int64     // the first record's offset
	counts []uint8   // of each record: how many cells
	cells  []sink.Cell
}

func (pg *placesPage) next() int64 { return pg.from + int64(len(pg.counts)) }

// note says which keys a record gave, before any is left out: under its snapshot, whatever becomes of them. A key with copies by its template lies
// anywhere. Records between that were not noted may give any key.
func (ps *places) note(now time.Time, offset int64, s *Snapshot, keys []mapping.Key) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	pg := ps.page(now, offset, s, len(keys))
	if pg == nil {
		return
	}
	for pg.next() < offset {
		pg.counts, pg.cells = append(pg.counts, 1), append(pg.cells, sink.Anywhere)
	}
	if len(keys) > cellsOfRecord {
		pg.counts, pg.cells = append(pg.counts, 1), append(pg.cells, sink.Anywhere)
		return
	}
	pg.counts = append(pg.counts, uint8(len(keys)))
	for i := range keys {
		cell := sink.Anywhere
		if keys[i].Template.Hot == 0 {
			cell = pg.ring.Cell(keys[i].Text)
		}
		pg.cells = append(pg.cells, cell)
	}
}

// cellsOfRecord is how many keys of one record are told apart.
const cellsOfRecord = 64

// page is the one that a record goes to; nil: there is no room for another.
func (ps *places) page(now time.Time, offset int64, s *Snapshot, keys int) *placesPage {
	if n := len(ps.mu.pages); n > 0 {
		pg := ps.mu.pages[n-1]
		if gap := int(min(offset-pg.next(), placesOfPage)); gap >= 0 {
			if pg.mapper == s.Mapper && pg.ring == s.View.Topology && len(pg.counts)+gap < placesOfPage && len(pg.cells)+gap+min(keys, cellsOfRecord) <= placesOfPage {
				pg.last = now
				return pg
			}
		} else {
			ps.drop(n) // it goes back: nothing that is known may be of the same records
		}
	}
	ps.dropOld(now)
	for ps.held.Load() >= mostPlaces && len(ps.mu.pages) > 0 {
		ps.drop(1)
	}
	if ps.held.Load() >= mostPlaces {
		return nil
	}
	ps.held.Add(pageBytes)
	pg := &placesPage{mapper: s.Mapper, ring: s.View.Topology, last: now, from: offset, counts: make([]uint8, 0, placesOfPage), cells: make([]sink.Cell, 0, placesOfPage)}
	ps.mu.pages = append(ps.mu.pages, pg)
	return pg
}

// tidy drops what no pass asks for any more.
func (ps *places) tidy(now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropOld(now)
}

func (ps *places) dropOld(now time.Time) {
	n := 0
	for n < len(ps.mu.pages) && ps.mu.pages[n].last.Before(now.Add(-ps.keep)) {
		n++
	}
	ps.drop(n)
}

// drop drops the first n pages.
func (ps *places) drop(n int) {
	ps.mu.pages = slices.Delete(ps.mu.pages, 0, n)
	ps.held.Add(int64(-n * pageBytes))
}

// end drops all.
func (ps *places) end() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.drop(len(ps.mu.pages))
}

// placesAt is where somebody reads who goes on in the order of offsets.
type placesAt struct {
	page      *placesPage
	i         int // of the record
	firstCell int // its
}

// of gives the page of a record and the cells of its keys. A nil page: it is not known. What it gives does not change any more.
func (ps *places) of(at *placesAt, offset int64) (*placesPage, []sink.Cell) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if pg := at.page; pg == nil || offset < pg.from+int64(at.i) || offset >= pg.next() {
		i, found := slices.BinarySearchFunc(ps.mu.pages, offset, func(pg *placesPage, offset int64) int {
			switch {
			case pg.next() <= offset:
				return -1
			case pg.from > offset:
				return 1
			}
			return 0
		})
		if !found {
			return nil, nil
		}
		*at = placesAt{page: ps.mu.pages[i]}
	}
	pg := at.page
	for ; pg.from+int64(at.i) < offset; at.i++ {
		at.firstCell += int(pg.counts[at.i])
	}
	return pg, pg.cells[at.firstCell : at.firstCell+int(pg.counts[at.i])]
}

// movedCells are the cells of a ring in which a key may have moved for a pass.
type movedCells struct {
	at    placesAt
	ring  *sink.Topology
	hot   *sink.HotKeys
	cells *sink.Cells // nil: it may be any key
}

// stayed reports whether it is known, without decoding a record, that it gave no key that has moved: today's mappings mapped it when it was taken, and no other
// set did. Keys that have more copies today than then count as moved where one of these has.
func (ps *pass) stayed(r *changelog.Record, readers []*reader, today *Snapshot) bool {
	if ps.id.kind != payEpochs || len(readers) != 1 {
		return false
	}
	m := &ps.moved
	page, cells := ps.p.places.of(&m.at, r.Offset)
	if page == nil || page.mapper != today.Mapper {
		return false
	}
	if m.ring != page.ring || m.hot != today.View.Hot {
		m.ring, m.hot, m.cells = page.ring, today.View.Hot, ps.cellsOf(page.ring, today.View.Hot)
	}
	return m.cells != nil && !slices.ContainsFunc(cells, m.cells.Has)
}

// cellsOf are those of a ring in which any of the debts has a text that moved.
func (ps *pass) cellsOf(ring *sink.Topology, hot *sink.HotKeys) *sink.Cells {
	cells := sink.NewCells()
	for i := range ps.taken {
		moves := ps.taken[i].moves
		if moves.all || !cells.AddMoved(moves.Moves, ring) {
			return nil
		}
		for key := range hot.Entries {
			if moves.moved(key, hot.Copies(key)) {
				cells.Add(ring.Cell(key))
			}
		}
	}
	return cells
}
