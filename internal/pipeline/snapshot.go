package pipeline

import (
	"strconv"
	"sync/atomic"

	"invalidator/mapping"
	"invalidator/sink/registry"
)

// Snapshot is the one set of mappings, ring and hot keys under which a change is handled. Immutable. It is kept while a
// change in flight names it; what a journal line or a debt names can be had again (Archive, registry).
type Snapshot struct {
	Mapper mapping.Mapper
	View   *registry.View
}

// Fingerprint names the snapshot: the mappings' fingerprint, the ring's epoch and the hot keys' revision.
func (s *Snapshot) Fingerprint() string {
	return s.Mapper.Fingerprint() + "/" + strconv.FormatInt(s.View.Topology.Epoch(), 10) + "/" + strconv.FormatInt(s.View.Hot.Revision(), 10)
}

// Snapshots gives today's snapshot. Current is called for every change, from every partition.
type Snapshots struct {
	views  Views
	mapper atomic.Pointer[mapping.Mapper]
	last   atomic.Pointer[Snapshot]
}

// Views is what is needed of a registry.Watcher.
type Views interface {
	View() *registry.View
	Changed() <-chan struct{}
}

// NewSnapshots joins a registry, which must be ready, and a set of mappings.
func NewSnapshots(views Views, m mapping.Mapper) *Snapshots {
	s := &Snapshots{views: views}
	s.SetMapper(m)
	return s
}

// Changed is closed when another View stands. Take it before Current.
func (s *Snapshots) Changed() <-chan struct{} { return s.views.Changed() }

// SetMapper swaps the mappings. Changes in flight keep theirs.
func (s *Snapshots) SetMapper(m mapping.Mapper) { s.mapper.Store(&m) }

// Current returns the same Snapshot as long as nothing changed.
func (s *Snapshots) Current() *Snapshot {
	view, m := s.views.View(), *s.mapper.Load()
	if l := s.last.Load(); l != nil && l.View == view && l.Mapper == m {
		return l
	}
	n := &Snapshot{Mapper: m, View: view}
	s.last.Store(n)
	return n
}
