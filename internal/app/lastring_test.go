package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/config"
	"invalidator/sink/registry"
)

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// ringWorker is what of a worker watches the ring, in a file of its own, and the hot keys.
type ringWorker struct {
	registry.Watcher
	ringFile, hotFile string
	rings             *lastRings
	log               *syncBuffer
	stop              func()
}

func ringText(epoch int, node string) string {
	return fmt.Sprintf(`{"epoch": %d, "shards": [{"id": "s0", "primary": {"addr": "%s:1"}}]}`, epoch, node)
}

func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// startRing starts a worker's watcher over files; with ring "" over an etcd that does not answer.
func startRing(t *testing.T, c *changelogtest.Cluster, ring, hot string) *ringWorker {
	t.Helper()
	dir := t.TempDir()
	w := &ringWorker{ringFile: filepath.Join(dir, "ring.json"), hotFile: filepath.Join(dir, "hot.json"), log: &syncBuffer{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	cache := config.Cache{MaxTTL: time.Hour, Ring: config.Ring{Lag: time.Minute}}
	w.rings = newLastRings("fleet", log)
	cfg := config.Ring{File: w.ringFile, HotFile: w.hotFile}
	if ring == "" {
		cfg = config.Ring{Etcd: &config.Etcd{Endpoints: []string{"127.0.0.1:1"}, Key: "/r", HotPrefix: "/h/"}}
	} else {
		replaceFile(t, w.ringFile, ring)
		replaceFile(t, w.hotFile, hot)
	}
	var err error
	if w.Watcher, err = newWatcher(cfg, w.rings.options(cache), log); err != nil {
		t.Fatal(err)
	}
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopWatcher := inBackground(ctx, func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := (watchedRing{w.Watcher, w.rings}).open(ctx, store); err != nil {
		t.Fatal(err)
	}
	stop := w.rings.start(ctx)
	w.stop = sync.OnceFunc(func() { stop(); stopWatcher(); cancel(); store.Close() })
	t.Cleanup(w.stop)
	return w
}

func (w *ringWorker) nodes() string {
	var out []string
	for _, c := range w.View().Topology.AppendCopies(nil, "user:1", 0) {
		out = append(out, strings.TrimSuffix(c.Node, ":1"))
	}
	return strings.Join(out, " ")
}

// ringTopic is what the state topic has: epochs, and hot keys with the copies of today and the most.
func ringTopic(t *testing.T, c *changelogtest.Cluster) string {
	t.Helper()
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	st, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	rings, badRings := st.LoadRings("fleet")
	hot, badHot := st.LoadHot("fleet")
	newest, badNewest := st.LoadNewest("fleet")
	if badRings != nil || badHot != nil || badNewest != nil {
		t.Error(badRings, badHot, badNewest)
	}
	for epoch := range rings {
		out = append(out, fmt.Sprint("ring ", epoch))
	}
	for key, h := range hot {
		out = append(out, fmt.Sprintf("%s %d/%d", key, h.Copies, h.Most))
	}
	slices.Sort(out)
	return strings.Join(append(out, fmt.Sprint("newest ", newest.Epoch)), ", ")
}

// What one worker saw, another knows within a second or two, though its own registry does not say so; and one that starts without a
// registry has all of it.
func TestRingsThatOthersSaw(t *testing.T) {
	c := changelogtest.Start(t)
	a := startRing(t, c, ringText(1, "a"), `{"k": {"copies": 8}}`)
	b := startRing(t, c, ringText(1, "a"), `{}`)
	replaceFile(t, a.ringFile, ringText(2, "b"))
	waitFor(t, "b to have epoch 2", func() bool { return b.View().Topology.Epoch() == 2 && b.nodes() == "b a" })
	waitFor(t, "b to know the hot key", func() bool { return b.View().Hot.Copies("k") == 8 })
	replaceFile(t, a.hotFile, `{"k": {"copies": 2}}`)
	waitFor(t, "the topic to say so", func() bool { return ringTopic(t, c) == "k 2/8, ring 1, ring 2, newest 2" })
	a.stop()
	b.stop()

	d := startRing(t, c, "", "")
	if d.nodes() != "b a" || d.View().Hot.Copies("k") != 8 || d.View().Hot.Len() != 1 || !d.View().Confirmed.IsZero() {
		t.Errorf("got %s, %+v", d.nodes(), d.View().Hot)
	}
	if !d.View().Hot.Covers(a.View().Hot.Revision()) {
		t.Errorf("revision %d does not cover %d", d.View().Hot.Revision(), a.View().Hot.Revision())
	}
	e := startRing(t, c, ringText(1, "a"), `{}`) // its file is old
	if e.View().Topology.Epoch() != 2 {
		t.Errorf("got epoch %d", e.View().Topology.Epoch())
	}
}

// What came and left before a worker's first look at the registry, and is written down only after it, is learned, though the worker's own
// revision is later; also where saying so failed at first.
func TestHotKeysThatOthersSawBeforeOurFirstLook(t *testing.T) {
	c := changelogtest.Start(t)
	w := startRing(t, c, ringText(1, "a"), `{"x": {"copies": 2}}`)
	waitFor(t, "the topic to have ours", func() bool { return ringTopic(t, c) == "ring 1, x 2/2, newest 1" })
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	left := changelog.SavedHot{Revision: 1, Most: 8, Until: time.Now().Add(time.Hour)}
	if err := store.PutHot(t.Context(), "fleet", "k", left); err != nil {
		t.Fatal(err)
	}
	if err := store.PutNewest(t.Context(), "fleet", changelog.SavedNewest{Epoch: 1, HotRevision: 1}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it to be known", func() bool { return w.View().Hot.Copies("k") == 8 })

	var refused atomic.Int32
	c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		if !strings.Contains(string(req.AppendTo(nil)), "registry/fleet") || refused.Add(1) > 2 {
			return nil, nil, false
		}
		return refusedProduce(req), nil, true
	})
	other := startRing(t, c, ringText(1, "a"), `{"y": {"copies": 4}}`)
	waitFor(t, "what the other saw to be known", func() bool { return w.View().Hot.Copies("y") == 4 })
	if refused.Load() < 2 {
		t.Error("nothing was refused")
	}
	other.stop()
}

// A record is on the topic when it comes into force.
func TestARingRecordIsWrittenFirst(t *testing.T) {
	c := changelogtest.Start(t)
	var w *ringWorker
	var early atomic.Bool
	c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if strings.Contains(string(r.(*kmsg.ProduceRequest).AppendTo(nil)), "ring/fleet/2") && w.View().Topology.Epoch() == 2 {
			early.Store(true)
		}
		return nil, nil, false
	})
	w = startRing(t, c, ringText(1, "a"), `{}`)
	replaceFile(t, w.ringFile, ringText(2, "b"))
	waitFor(t, "epoch 2", func() bool { return w.View().Topology.Epoch() == 2 })
	if early.Load() {
		t.Error("it was in force before it was written")
	}
	if got := ringTopic(t, c); !strings.Contains(got, "ring 2") {
		t.Errorf("it is in force, and the topic has %s", got)
	}
}

// Where the topic cannot be written a record comes into force all the same, and is written later.
func TestARingRecordDoesNotWaitForKafka(t *testing.T) {
	c := changelogtest.Start(t)
	w := startRing(t, c, ringText(1, "a"), `{}`)
	var away atomic.Bool
	away.Store(true)
	c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return refusedProduce(r.(*kmsg.ProduceRequest)), nil, away.Load()
	})
	replaceFile(t, w.ringFile, ringText(2, "b"))
	waitFor(t, "epoch 2", func() bool { return w.View().Topology.Epoch() == 2 })
	waitFor(t, "a word of it", func() bool { return strings.Contains(w.log.String(), "it is tried again") })
	if got := ringTopic(t, c); strings.Contains(got, "ring 2") {
		t.Errorf("the topic has %s", got)
	}
	away.Store(false)
	waitFor(t, "it to be written", func() bool { return ringTopic(t, c) == "ring 1, ring 2, newest 2" })
}

// What no copy can be under any more leaves the topic; a record that nobody can read stays, is told, and stops nothing.
func TestRingsThatExpired(t *testing.T) {
	c := changelogtest.Start(t)
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	put := func(key, value string) {
		t.Helper()
		if err := store.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(epoch int, node string, ago time.Duration) string {
		return fmt.Sprintf(`{"v":1,"epoch":%d,"seen":%q,"by":"w","record":%s}`, epoch, time.Now().Add(-ago).UTC().Format(time.RFC3339Nano), ringText(epoch, node))
	}
	put("ring/fleet/1", seen(1, "a", 9*time.Hour))
	put("ring/fleet/2", seen(2, "b", 2*time.Hour)) // replaced 1
	put("ring/fleet/3", seen(3, "c", 30*time.Minute))
	put("hot/fleet/old", `{"v":1,"copies":0,"revision":3,"most":8,"until":"2020-01-01T00:00:00Z"}`)
	put("hot/fleet/a%2Fb%FF", `{"v":1,"copies":0,"revision":4,"most":8,"until":"2099-01-01T00:00:00Z"}`)
	w := startRing(t, c, ringText(3, "c"), `{}`)
	if w.nodes() != "c b" || w.View().Hot.Copies("old") != 0 || w.View().Hot.Copies("a/b\xff") != 8 {
		t.Errorf("got %s, %+v", w.nodes(), w.View().Hot)
	}
	waitFor(t, "what expired to be gone", func() bool { return ringTopic(t, c) == "a/b\xff 0/8, ring 2, ring 3, newest 3" })
	w.stop()

	put("ring/fleet/4", `{"v":1,"epoch":4,"seen":"2026-11-30T10:00:00Z","by":"w","record":{"epoch":4,"shards":[{"id":"s0","hat":1}]}}`)
	put("ring/fleet/5", `{"v":9}`)
	put("hot/fleet/x", `{"v":9}`)
	w = startRing(t, c, ringText(3, "c"), `{}`)
	for _, want := range []string{"hat", "key ring/fleet/5", "key hot/fleet/x"} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, w.log.String())
		}
	}
	if w.nodes() != "c b" {
		t.Errorf("got %s", w.nodes())
	}
}
