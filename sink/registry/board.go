package registry

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/sink"
)

// board is what a watcher knows, and where it puts its views up: the part of Watcher that all of them share.
type board struct {
	log   *slog.Logger
	opts  Options
	local bool // it watches files of this host
	view  atomic.Pointer[View]
	ready chan struct{} // closed with the first view

	mu        sync.Mutex // guards what follows
	past      past
	hot       hotPast
	fed       int64 // every change of the hot keys up to this revision is known from other workers
	confirmed time.Time
	changed   chan struct{} // closed and replaced with each view
}

func newBoard(opts Options, log *slog.Logger) *board {
	return &board{log: log, opts: opts, ready: make(chan struct{}), changed: make(chan struct{})}
}

func (b *board) Ready() <-chan struct{} { return b.ready }

func (b *board) View() *View { return b.view.Load() }

func (b *board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// offer takes a record of a higher epoch than the one in force, and the one in force again. An error says why the record was
// not taken; the last good one stays. It is the watcher's Run's alone.
func (b *board) offer(source string, data []byte) (epoch int64, err error) {
	record, err := sink.ParseRecord(source, data)
	if err != nil {
		return 0, err
	}
	if known, err := b.check(source, record); known || err != nil {
		return record.Epoch, err
	}
	s := Sight{record, time.Now()}
	if b.opts.Keep != nil {
		b.opts.Keep(s)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, err := b.past.check(source, record); known || err != nil { // another worker's was fed meanwhile
		return record.Epoch, err
	}
	b.past.add(s)
	return record.Epoch, nil
}

func (b *board) check(source string, record *sink.Record) (known bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.past.check(source, record)
}

// setHot takes all hot keys that the registry held at revision.
func (b *board) setHot(now map[string]offered, revision int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hot.set(now, revision, time.Now().Add(b.opts.stays()))
}

// confirm notes that at that moment the registry held a good ring record of this epoch, and hot keys as they were set, up to a
// revision.
func (b *board) confirm(at time.Time, epoch, known int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hot.known = max(b.hot.known, known)
	if t := b.past.today(); t != nil && t.Record.Epoch == epoch {
		b.confirmed = at
	}
}

// Feed implements Watcher.
func (b *board) Feed(s Saved) {
	b.mu.Lock()
	b.fed = max(b.fed, s.HotSeen)
	changed := s.HotRevision > b.hot.revision
	for _, sight := range s.Sights {
		changed = b.past.add(sight) || changed
	}
	until := time.Now().Add(b.opts.stays())
	for key, e := range s.Hot {
		b.hot.merge(key, e, until)
		changed = changed || b.hot.built == nil
	}
	if s.HotRevision > b.hot.revision {
		b.hot.revision, b.hot.built = s.HotRevision, nil
	}
	b.mu.Unlock()
	if changed {
		b.put()
	}
}

func (b *board) fedTo() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fed
}

// put publishes what is known, once there is a ring in it.
func (b *board) put() {
	old, now, err := b.swap()
	switch {
	case err != nil:
		b.log.Error("registry: the last good ring stays in use", "err", err)
	case now != nil && (old == nil || old.Topology.Epoch() != now.Topology.Epoch()):
		b.log.Info("registry: a ring record is in use", "epoch", now.Topology.Epoch(), "nodes", len(now.Topology.Nodes()),
			"resizing", now.Topology.HasPrevious(), "former_records", len(now.Sights)-1)
	}
}

// swap is put without a word. now is nil where there is no ring yet.
func (b *board) swap() (old, now *View, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.past.today() == nil {
		return nil, nil, nil
	}
	at := time.Now()
	if err := b.past.settle(at, b.opts); err != nil {
		return nil, nil, err
	}
	now = &View{
		Topology: b.past.topology, Hot: b.hot.settle(at), Confirmed: b.confirmed, Carried: b.past.carried(b.opts),
		Sights: b.past.sights[:len(b.past.sights):len(b.past.sights)], Unseen: b.past.holes(b.opts), Local: b.local, gained: b.past.gained,
	}
	if old = b.view.Swap(now); old == nil {
		close(b.ready)
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return old, now, nil
}
