package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/obs"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
)

// archived is an archive over a topic, and the mappings that it keeps.
type archived struct {
	*folder
	store *changelog.StateStore
	swaps atomic.Int64
}

func startArchive(t *testing.T, c *changelogtest.Cluster, files ...string) *archived {
	t.Helper()
	conf := parse(t, t.TempDir(), "kafka: {group: fleet}\n")
	for i := 0; i < len(files); i += 2 {
		write(t, conf.Mappings.Dir, files[i], files[i+1])
	}
	a := &archived{folder: &folder{metrics: obs.NewRegistry(), hup: make(chan os.Signal, 1)}}
	var err error
	if a.mappings, err = newMappings(conf, a.metrics, slog.New(slog.NewTextHandler(&a.log, nil))); err != nil {
		t.Fatal(err)
	}
	if a.store, err = changelog.OpenState(c.Options, c.Names.State); err != nil {
		t.Fatal(err)
	}
	a.archive = newArchive("fleet", time.Hour, a.store, slog.New(slog.NewTextHandler(&a.log, nil)))
	if err := a.open(t.Context(), a.store); err != nil {
		t.Fatal(err)
	}
	stop := a.start(t.Context(), a.hup, func(*mapping.Set) { a.swaps.Add(1) })
	t.Cleanup(func() { stop(); a.store.Close() })
	return a
}

func (a *archived) load(t *testing.T) *changelog.State {
	t.Helper()
	st, err := a.store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// texts are the keys of the texts on the topic.
func texts(st *changelog.State) (keys []string) {
	for key := range st.Under("mappingtext", "fleet") {
		keys = append(keys, key)
	}
	return keys
}

// A set is on the topic before it comes into force, and another process, which has never read that folder, makes the same of it. A text
// that two sets share is written once.
func TestEverySetInForceIsArchived(t *testing.T) {
	c := changelogtest.Start(t)
	a := startArchive(t, c, "users.yaml", usersMapping, "orders.yaml", ordersMapping)
	first := a.today().set.Fingerprint()
	if got := a.load(t).MappingSets("fleet"); !slices.Equal(got, []string{first}) {
		t.Errorf("at the start the topic has %v", got)
	}
	write(t, a.dir, "orders.yaml", ordersMapping+"# 2\n")
	a.hup <- os.Interrupt
	waitFor(t, "the second set", func() bool { return a.swaps.Load() == 1 })
	second := a.today().set.Fingerprint()
	st := a.load(t)
	if got := st.MappingSets("fleet"); len(got) != 2 || len(texts(st)) != 3 {
		t.Errorf("the topic has sets %v, texts %v", got, texts(st))
	}

	other := issuedMappings{newArchive("fleet", time.Hour, a.store, quiet)}
	for _, fingerprint := range []string{first, second} {
		m, err := other.Mapper(t.Context(), fingerprint)
		if err != nil || m.Fingerprint() != fingerprint {
			t.Fatalf("%s: got %v, %v", fingerprint, m, err)
		}
		again, err := other.Mapper(t.Context(), fingerprint)
		if err != nil || again != m {
			t.Errorf("%s is compiled twice (%v)", fingerprint, err)
		}
	}
	if _, err := other.Mapper(t.Context(), "0123"); !errors.Is(err, pipeline.ErrNoMappings) || !errors.Is(err, changelog.ErrNoMappingSet) {
		t.Errorf("a set that never was: got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := other.Mapper(ended, "0123"); err == nil || errors.Is(err, pipeline.ErrNoMappings) {
		t.Errorf("without a broker: got %v, which must be asked again", err)
	}
}

// A set that cannot be written does not come into force: the one before stays, and it is tried again.
func TestASetThatCannotBeArchivedWaits(t *testing.T) {
	c := changelogtest.Start(t)
	a := startArchive(t, c, "users.yaml", usersMapping)
	first := a.today().set.Fingerprint()
	var away atomic.Bool
	away.Store(true)
	c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return refusedProduce(r.(*kmsg.ProduceRequest)), nil, away.Load()
	})
	write(t, a.dir, "users.yaml", usersMapping+"# 2\n")
	a.hup <- os.Interrupt
	waitFor(t, "a word of it", func() bool { return strings.Contains(a.log.String(), "the new set cannot be written down") })
	if a.today().set.Fingerprint() != first || a.swaps.Load() != 0 {
		t.Error("it is in force")
	}
	away.Store(false)
	a.hup <- os.Interrupt
	waitFor(t, "the second set", func() bool { return a.swaps.Load() == 1 })
	if got := a.load(t).MappingSets("fleet"); !slices.Contains(got, a.today().set.Fingerprint()) {
		t.Errorf("it is in force, and the topic has %v", got)
	}
}

// What is broken on the topic is no set; what one record cannot hold is cut.
func TestArchivedTexts(t *testing.T) {
	c := changelogtest.Start(t)
	large := usersMapping + "# " + strings.Repeat("é\x01", 400<<10) + "\n"
	large = strings.ReplaceAll(large, "\x01", "語")
	a := startArchive(t, c, "users.yaml", large)
	set := a.today().set
	if len(set.Files()) != 1 || len(texts(a.load(t))) < 10 {
		t.Fatalf("%d files, texts %v", len(set.Files()), texts(a.load(t)))
	}
	mapper := func() error {
		m, err := issuedMappings{newArchive("fleet", time.Hour, a.store, quiet)}.Mapper(t.Context(), set.Fingerprint())
		if err == nil && m.Fingerprint() != set.Fingerprint() {
			t.Errorf("got %s", m.Fingerprint())
		}
		return err
	}
	if err := mapper(); err != nil {
		t.Fatal(err)
	}
	key := texts(a.load(t))[3]
	was, _ := a.load(t).Get(key)
	for name, value := range map[string]string{
		"another text":    strings.Replace(string(was.Value), "é", "e", 1),
		"another version": `{"v":9}`,
		"no text":         "",
	} {
		var err error
		if value == "" {
			err = a.store.Remove(t.Context(), key)
		} else {
			err = a.store.Put(t.Context(), key, []byte(value))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := mapper(); !errors.Is(err, pipeline.ErrNoMappings) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := a.archive.keep(t.Context(), set, nil); err != nil { // upkeep mends it
		t.Fatal(err)
	}
	if err := mapper(); err != nil {
		t.Error(err)
	}
}

// Sets stay for as long as a journal line may name them, and then go with the texts that nobody else has.
func TestSetsThatNobodyNeedsAreRemoved(t *testing.T) {
	c := changelogtest.Start(t)
	a := startArchive(t, c, "users.yaml", usersMapping)
	set := a.today().set
	file := func(text string) []changelog.MappingSetFile {
		return []changelog.MappingSetFile{{Name: "users.yaml", Text: usersMapping}, {Name: "orders.yaml", Text: text}}
	}
	for name, ago := range map[string]time.Duration{"old": 5 * time.Hour, "young": 3 * time.Hour} {
		s := changelog.MappingSet{Fingerprint: name, Files: file(name), Used: time.Now().Add(-ago)}
		if err := a.store.PutMappingSet(t.Context(), "fleet", s, a.load(t)); err != nil {
			t.Fatal(err)
		}
	}
	before := texts(a.load(t))
	if err := a.archive.upkeep(t.Context(), set, a.load(t)); err != nil {
		t.Fatal(err)
	}
	st := a.load(t)
	if got := st.MappingSets("fleet"); fmt.Sprint(got) != fmt.Sprint([]string{set.Fingerprint(), "young"}) {
		t.Errorf("left are %v", got)
	}
	if len(before) != 3 || len(texts(st)) != 2 {
		t.Errorf("of texts %v are left %v", before, texts(st))
	}
	if err := a.store.Put(t.Context(), "mappingset/fleet/x", []byte(`{"v":9}`)); err != nil {
		t.Fatal(err)
	}
	if err := a.store.RemoveMappingSets(t.Context(), "fleet", a.load(t), time.Hour, time.Now().Add(100*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if st := a.load(t); len(texts(st)) != 2 || fmt.Sprint(st.MappingSets("fleet")) != "[x]" {
		t.Errorf("what a newer version's set has was removed: texts %v, sets %v", texts(st), st.MappingSets("fleet"))
	}
}
