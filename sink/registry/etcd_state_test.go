package registry

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"
)

// The confirmation rests on this: where newest is equal at two moments, so is all that etcd holds.
func TestEqualNewestMeansEqualContent(t *testing.T) {
	_, log := newReports()
	rapid.Check(t, func(rt *rapid.T) {
		s := newEtcdState(EtcdConfig{RingKey: "/ring", HotPrefix: "/hot/"}, newBoard(Options{}, log), newTroubles(log))
		past := map[newest]string{}
		for revision := range int64(rapid.IntRange(1, 30).Draw(rt, "changes")) {
			name := "/hot/" + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name")
			e := &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(name), ModRevision: revision + 1}}
			switch _, there := s.entries[name]; {
			case there && rapid.Bool().Draw(rt, "delete"):
				e.Type = clientv3.EventTypeDelete
			default:
				e.Kv.Value = fmt.Appendf(nil, `{"copies": %d}`, rapid.IntRange(1, 3).Draw(rt, "copies"))
			}
			s.putHot([]*clientv3.Event{e})
			content := fmt.Sprint(today(s))
			if was, known := past[s.newest()]; known && was != content {
				rt.Fatalf("%+v is both %s and %s", s.newest(), was, content)
			}
			past[s.newest()] = content
		}
	})
}

// Reading everything again takes away what was deleted unseen, and keeps the last good of what is bad now.
func TestReplaceAfterAGap(t *testing.T) {
	_, log := newReports()
	s := newEtcdState(EtcdConfig{RingKey: "/ring", HotPrefix: "/hot/"}, newBoard(Options{}, log), newTroubles(log))
	s.replace(5, kvs(2, "/ring", record(1)), kvs(3, "/hot/gone", `{"copies": 2}`, "/hot/bad", `{"copies": 4}`, "/hot/a%3A1", `{"copies": 6}`))
	s.confirm(time.Unix(5, 0), 5)
	s.replace(9, kvs(7, "/ring", `{}`), kvs(8, "/hot/bad", `{}`, "/hot/a:1", `{"copies": 8}`, "/hot/a%3A1", `{"copies": 6}`))
	s.confirm(time.Unix(9, 0), 9)
	s.board.put()
	v := s.board.View()
	if v == nil || v.Topology.Epoch() != 1 || !v.Confirmed.Equal(time.Unix(5, 0)) {
		t.Errorf("got %+v", v)
	}
	if got, want := fmt.Sprint(maps.Collect(v.Hot.Each)), "map[a:1:8 bad:4]"; got != want || v.Hot.Revision() != 9 {
		t.Errorf("got %s at %d, want %s at 9", got, v.Hot.Revision(), want)
	}
}

// Changes that come in one answer of etcd count one by one.
func TestChangesOfOneAnswer(t *testing.T) {
	_, log := newReports()
	s := newEtcdState(EtcdConfig{RingKey: "/ring", HotPrefix: "/hot/"}, newBoard(Options{MaxTTL: time.Hour}, log), newTroubles(log))
	s.replace(1, kvs(1, "/ring", record(1)), nil)
	put := func(revision int64, name, value string) *clientv3.Event {
		return &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(name), Value: []byte(value), ModRevision: revision}}
	}
	s.putHot([]*clientv3.Event{
		put(2, "/hot/a", `{"copies": 8}`), put(3, "/hot/a", `{"copies": 3}`), put(4, "/hot/b", `{"copies": 2}`),
		{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte("/hot/b"), ModRevision: 5}},
	})
	s.board.put()
	v := s.board.View()
	if v.Hot.Copies("a") != 8 || v.Hot.Copies("b") != 2 || fmt.Sprint(maps.Collect(v.Hot.Each)) != "map[a:3]" || v.Hot.Revision() != 5 {
		t.Errorf("a has %d copies, b %d, today's are %v, at %d", v.Hot.Copies("a"), v.Hot.Copies("b"), maps.Collect(v.Hot.Each), v.Hot.Revision())
	}
}

func TestNoViewBeforeARing(t *testing.T) {
	_, log := newReports()
	s := newEtcdState(EtcdConfig{RingKey: "/ring", HotPrefix: "/hot/"}, newBoard(Options{}, log), newTroubles(log))
	s.replace(1, nil, kvs(1, "/hot/a", `{"copies": 2}`))
	s.board.put()
	if v := s.board.View(); v != nil {
		t.Errorf("got %+v", v)
	}
}

func today(s etcdState) map[string]int { return maps.Collect(s.board.hot.settle(time.Now()).Each) }

// kvs are keys and values in turn, all of one revision.
func kvs(revision int64, pairs ...string) []*mvccpb.KeyValue {
	var out []*mvccpb.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &mvccpb.KeyValue{Key: []byte(pairs[i]), Value: []byte(pairs[i+1]), ModRevision: revision})
	}
	return out
}
