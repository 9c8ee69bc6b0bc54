package registry

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"invalidator/sink"
)

// etcdState is what etcd holds, as far as it was read and watched, and the last good of it.
type etcdState struct {
	ringKey, hotPrefix string
	troubles           *troubles

	board *board

	ringMod   int64 // revision of the record that etcd holds; 0: it holds none
	ringEpoch int64 // its epoch, where it is good and not older than the one in force; else 0
	entries   map[string]hotEntry
}

// hotEntry is one entry of the hot-key registry.
type hotEntry struct {
	mod    int64
	key    string
	copies int // 0: it was never good
}

// newest names what etcd holds: equal values mean an equal ring record and equal hot keys. A put gives its key the highest
// revision; where no key has a higher revision than before, none was put, and where as many are left, none was deleted.
type newest struct {
	ring, hot, hotCount int64
}

func newEtcdState(cfg EtcdConfig, b *board, t *troubles) etcdState {
	return etcdState{ringKey: cfg.RingKey, hotPrefix: cfg.HotPrefix, troubles: t, board: b, entries: make(map[string]hotEntry)}
}

// replace takes all that etcd holds at revision.
func (s *etcdState) replace(revision int64, ring, hot []*mvccpb.KeyValue) {
	if len(ring) == 0 {
		s.dropRing(errors.New("etcd holds no ring record at " + s.ringKey + " (the cluster manager is to publish one)"))
	}
	for _, kv := range ring {
		s.offerRing(kv)
	}
	present := make(map[string]bool, len(hot))
	for _, kv := range hot {
		present[string(kv.Key)] = true
		s.offerEntry(kv)
	}
	for name := range s.entries {
		if !present[name] {
			s.dropEntry(name)
		}
	}
	s.gather(revision)
}

func (s *etcdState) putRing(events []*clientv3.Event) {
	for _, e := range events {
		if e.Type == clientv3.EventTypeDelete {
			s.dropRing(errors.New("the ring record at " + s.ringKey + " was deleted (the cluster manager is to publish it again)"))
		} else {
			s.offerRing(e.Kv)
		}
	}
}

func (s *etcdState) offerRing(kv *mvccpb.KeyValue) {
	epoch, err := s.board.offer("etcd "+s.ringKey, kv.Value)
	if s.ringMod, s.ringEpoch = kv.ModRevision, epoch; err != nil {
		s.ringEpoch = 0
	}
	s.troubles.tell("ring record", err)
}

func (s *etcdState) dropRing(why error) {
	s.ringMod, s.ringEpoch = 0, 0
	s.troubles.tell("ring record", why)
}

// putHot takes changes in their order. What came and left again, or had more copies for a moment, counts: clients may have seen it. So
// whatever of one entry comes after another is gathered by itself.
func (s *etcdState) putHot(events []*clientv3.Event) {
	var revision int64
	touched := map[string]bool{}
	for _, e := range events {
		name := string(e.Kv.Key)
		if touched[name] {
			s.gather(revision)
			clear(touched)
		}
		touched[name] = true
		if e.Type == clientv3.EventTypeDelete {
			s.dropEntry(name)
		} else {
			s.offerEntry(e.Kv)
		}
		revision = e.Kv.ModRevision
	}
	s.gather(revision)
}

// offerEntry takes an entry; one that is not good is left out alone, or stays as it was when it last was good.
func (s *etcdState) offerEntry(kv *mvccpb.KeyValue) {
	name := string(kv.Key)
	key, copies, err := sink.ParseHotEntry(strings.TrimPrefix(name, s.hotPrefix), kv.Value)
	e := hotEntry{kv.ModRevision, key, copies}
	if err != nil {
		err = fmt.Errorf("etcd %s: %w", name, err)
		e.key, e.copies = s.entries[name].key, s.entries[name].copies
	}
	s.entries[name] = e
	s.troubles.tell("hot entry "+name, err)
}

func (s *etcdState) dropEntry(name string) {
	delete(s.entries, name)
	s.troubles.tell("hot entry "+name, nil)
}

// gather makes the hot keys of the entries. Two spellings of one key count as the larger.
func (s *etcdState) gather(revision int64) {
	now := make(map[string]offered, len(s.entries))
	for _, e := range s.entries {
		if e.copies > 0 {
			o := now[e.key]
			now[e.key] = offered{max(o.mod, e.mod), max(o.copies, e.copies)}
		}
	}
	s.board.setHot(now, revision)
}

func (s *etcdState) newest() newest {
	n := newest{ring: s.ringMod, hotCount: int64(len(s.entries))}
	for _, e := range s.entries {
		n.hot = max(n.hot, e.mod)
	}
	return n
}

// confirm notes that etcd held at that moment, and at that revision, what s holds.
func (s *etcdState) confirm(at time.Time, revision int64) {
	s.board.confirm(at, s.ringEpoch, revision)
}
