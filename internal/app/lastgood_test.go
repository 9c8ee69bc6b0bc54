package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/obs"
	"invalidator/mapping"
)

var day = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

// written are files as the state topic has them, the first the oldest. One that is called "gone x" is gone since.
func written(texts ...string) map[string]changelog.SavedMapping {
	all := map[string]changelog.SavedMapping{}
	for i := 0; i < len(texts); i += 2 {
		name, gone := strings.CutPrefix(texts[i], "gone ")
		s := changelog.SavedMapping{Generation: 1}
		s.MappingFile = changelog.MappingFile{Name: name, Team: "t", Text: texts[i+1], Since: day.Add(time.Duration(i) * time.Hour), By: "w-0"}
		if gone {
			s.Gone = day
		}
		all[name] = s
	}
	return all
}

const (
	broken = "version: 1\nteam: profiles\ntable: x\n"
	thief  = "version: 1\nteam: thieves\npools: [user]\nmappings:\n  - name: t\n    table: shop.t\n    keys: ['user:{t}']\n"
)

// What a process has in force when it starts, by what the folder and the topic have.
func TestStartWithWhatWasLastGood(t *testing.T) {
	friends := strings.ReplaceAll(usersMapping, "user", "friend")
	for _, tc := range []struct {
		name      string
		folder    map[string]string // nil: there is none
		saved     map[string]changelog.SavedMapping
		want      string // tables that are mapped
		failing   []string
		recalled  []string
		log, fail string
	}{
		{"nothing was good", map[string]string{"users.yaml": broken, "orders.yaml": ordersMapping}, nil,
			"orders", []string{"users.yaml"}, nil, "a mapping file is left out", ""},
		{"a broken file", map[string]string{"users.yaml": broken, "orders.yaml": ordersMapping}, written("users.yaml", usersMapping, "orders.yaml", friends),
			"orders users", []string{"users.yaml"}, []string{"users.yaml"}, `msg="a mapping file is in force as the state topic has it" file=users.yaml team=t since=2026-11-30`, ""},
		{"a broken file that was thought to be gone", map[string]string{"users.yaml": broken, "orders.yaml": ordersMapping}, written("gone users.yaml", usersMapping),
			"orders users", []string{"users.yaml"}, []string{"users.yaml"}, "its last good form stays in force", ""},
		{"a file that is gone", map[string]string{"orders.yaml": ordersMapping}, written("users.yaml", usersMapping, "orders.yaml", ordersMapping),
			"orders", nil, nil, "mappings in force", ""},
		{"no file", map[string]string{}, written("users.yaml", usersMapping, "gone orders.yaml", ordersMapping),
			"users", []string{"mappings.d"}, []string{"users.yaml"}, "the mappings folder fails", ""},
		{"no file, and there was none", map[string]string{}, nil, "", nil, nil, "nothing is mapped", ""},
		{"no file, and all are gone", map[string]string{}, written("gone orders.yaml", ordersMapping), "", nil, nil, "nothing is mapped", ""},
		{"no folder", nil, written("users.yaml", usersMapping), "users", []string{"mappings.d"}, []string{"users.yaml"}, "the mappings folder fails", ""},
		{"no folder, and nothing was good", nil, nil, "", nil, nil, "", "no such file or directory (and the state topic has none that were last good)"},
		{"no folder, and all are gone", nil, written("gone orders.yaml", ordersMapping), "", nil, nil, "", "no such file or directory (and the state topic has none that were last good)"},
		{"a pool that another file claims", map[string]string{"a.yaml": thief, "users.yaml": usersMapping}, written("users.yaml", usersMapping),
			"users", []string{"a.yaml"}, nil, "a.yaml:3:9: pool", ""},
		{"a pool of a broken file that another one claims", map[string]string{"a.yaml": thief, "users.yaml": broken}, written("users.yaml", usersMapping),
			"users", []string{"a.yaml", "users.yaml"}, []string{"users.yaml"}, "a.yaml:3:9: pool", ""},
		{"a pool that went from one file to another", map[string]string{"a.yaml": thief, "users.yaml": friends}, written("users.yaml", usersMapping),
			"friends t", nil, nil, "mappings in force", ""},
		{"two files of one pool: the newer counts", map[string]string{"a.yaml": broken, "users.yaml": broken}, written("a.yaml", thief, "users.yaml", usersMapping),
			"users", []string{"a.yaml", "users.yaml"}, []string{"users.yaml"}, "a mapping file is left out", ""},
		{"two files of one pool: the one that is not gone counts", map[string]string{"a.yaml": broken, "users.yaml": broken}, written("users.yaml", usersMapping, "gone a.yaml", thief),
			"users", []string{"a.yaml", "users.yaml"}, []string{"users.yaml"}, "a mapping file is left out", ""},
		{"what was good is wrong for this version", map[string]string{"users.yaml": broken, "orders.yaml": broken}, written("users.yaml", broken, "orders.yaml", ordersMapping),
			"orders", []string{"orders.yaml", "users.yaml"}, []string{"orders.yaml"}, "a mapping file that was last good is wrong for this version", ""},
		{"what was good cannot be read", map[string]string{"users.yaml": broken, "orders.yaml": broken},
			map[string]changelog.SavedMapping{"users.yaml": {MappingFile: changelog.MappingFile{Name: "users.yaml"}, Generation: 1, Err: changelog.ErrUnknownVersion}, "orders.yaml": written("orders.yaml", ordersMapping)["orders.yaml"]},
			"orders", []string{"orders.yaml", "users.yaml"}, []string{"orders.yaml"}, "cannot be read\" file=users.yaml", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := parse(t, t.TempDir(), "kafka: {group: fleet}\n")
			for name, text := range tc.folder {
				write(t, c.Mappings.Dir, name, text)
			}
			if tc.folder == nil {
				if err := os.Remove(c.Mappings.Dir); err != nil {
					t.Fatal(err)
				}
			}
			f := &folder{metrics: obs.NewRegistry()}
			var err error
			if f.mappings, err = newMappings(c, f.metrics, slog.New(slog.NewTextHandler(&f.log, nil))); err != nil {
				t.Fatal(err)
			}
			if f.value(t, "invalidator_mappings_files") != -1 {
				t.Error("there are metrics of files before there are files")
			}
			if err := f.mappings.begin(tc.saved); err != nil || tc.fail != "" {
				if err == nil || tc.fail == "" || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("got %v, want %q", err, tc.fail)
				}
				return
			}
			s := f.today()
			var tables []string
			for _, file := range s.set.Files() {
				for _, m := range file.Mappings {
					tables = append(tables, strings.TrimPrefix(m.Tables[0], "shop."))
				}
			}
			slices.Sort(tables)
			if got := strings.Join(tables, " "); got != tc.want || !slices.Equal(s.failing, tc.failing) || !slices.Equal(s.recalled, tc.recalled) || s.since.IsZero() {
				t.Errorf("in force are %q, failing %q, recalled %q; want %q, %q, %q", got, s.failing, s.recalled, tc.want, tc.failing, tc.recalled)
			}
			if !strings.Contains(f.log.String(), tc.log) {
				t.Errorf("the log lacks %q:\n%s", tc.log, f.log.String())
			}
			if got := f.value(t, "invalidator_mappings_files_recalled"); got != float64(len(tc.recalled)) {
				t.Errorf("the metric shows %v recalled", got)
			}
		})
	}
}

// A file that is mended, and a folder that comes, count as recalled no more.
func TestRecalledIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := parse(t, t.TempDir(), "kafka: {group: fleet}\n")
		f := &folder{metrics: obs.NewRegistry(), hup: make(chan os.Signal, 1)}
		f.mappings = beginMappings(t, c, f.metrics, slog.New(slog.NewTextHandler(&f.log, nil)), written("users.yaml", usersMapping, "orders.yaml", ordersMapping))
		f.watched(t)
		want := func(want ...string) {
			t.Helper()
			f.hup <- os.Interrupt
			synctest.Wait()
			if got := f.today().recalled; !slices.Equal(got, want) {
				t.Errorf("recalled are %q, want %q", got, want)
			}
		}
		want("orders.yaml", "users.yaml")
		write(t, f.dir, "users.yaml", broken)
		write(t, f.dir, "orders.yaml", ordersMapping)
		want("users.yaml")
		os.Rename(f.dir, f.dir+"-away")
		want("users.yaml")
		os.Rename(f.dir+"-away", f.dir)
		write(t, f.dir, "users.yaml", usersMapping)
		want()
		f.wantSwaps(t, 0)
	})
}

// fleetProcess is a process of a fleet over a fake broker, with a folder of its own.
type fleetProcess struct {
	*folder
	stop func()
}

// startProcess starts one with these files: name, text, name, text.
func startProcess(t *testing.T, c *changelogtest.Cluster, files ...string) *fleetProcess {
	t.Helper()
	return startComparing(t, c, lastGoodEvery, files...)
}

// startComparing is startProcess, of one that compares the topic with what it has in force so often.
func startComparing(t *testing.T, c *changelogtest.Cluster, every time.Duration, files ...string) *fleetProcess {
	t.Helper()
	conf := parse(t, t.TempDir(), "kafka: {group: fleet}\n")
	for i := 0; i < len(files); i += 2 {
		write(t, conf.Mappings.Dir, files[i], files[i+1])
	}
	p := &fleetProcess{folder: &folder{metrics: obs.NewRegistry(), hup: make(chan os.Signal, 1)}}
	var err error
	if p.mappings, err = newMappings(conf, p.metrics, slog.New(slog.NewTextHandler(&p.log, nil))); err != nil {
		t.Fatal(err)
	}
	p.saveEvery = every
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	stop := p.start(t.Context(), p.hup, func(*mapping.Set) {})
	p.stop = func() { stop(); store.Close() }
	t.Cleanup(p.stop)
	return p
}

// topic is what the state topic says: name -> text, with the generation before it, and "gone " where it is.
func topic(t *testing.T, c *changelogtest.Cluster) map[string]string {
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
	out := map[string]string{}
	for name, s := range st.LoadMappings("fleet") {
		text := string(rune('0'+s.Generation)) + " " + s.Text
		if !s.Gone.IsZero() {
			text = "gone " + text
		}
		out[name] = text + strings.Join(s.Stale, " ") // none of which stays
	}
	return out
}

func wantTopic(t *testing.T, c *changelogtest.Cluster, texts ...string) {
	t.Helper()
	want := map[string]string{}
	for i := 0; i < len(texts); i += 2 {
		want[texts[i]] = texts[i+1]
	}
	waitFor(t, "the state topic to say what is in force", func() bool { return cmp.Equal(topic(t, c), want) })
}

// What is in force is on the topic, once whatever the number of processes, and follows the folder; a broken file changes
// nothing there, and a process that starts with it has what is there.
func TestWhatIsInForceIsWrittenDown(t *testing.T) {
	c := changelogtest.Start(t)
	first := startProcess(t, c, "users.yaml", usersMapping, "orders.yaml", ordersMapping)
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "1 "+ordersMapping)
	write(t, first.dir, "orders.yaml", ordersMapping+"# 2\n")
	first.hup <- os.Interrupt
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "2 "+ordersMapping+"# 2\n")
	write(t, first.dir, "users.yaml", broken)
	os.Remove(filepath.Join(first.dir, "orders.yaml"))
	first.hup <- os.Interrupt
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "gone 3 "+ordersMapping+"# 2\n")
	first.stop()

	second := startProcess(t, c, "users.yaml", broken, "new.yaml", strings.ReplaceAll(usersMapping, "user", "friend"))
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "gone 3 "+ordersMapping+"# 2\n", "new.yaml", "1 "+strings.ReplaceAll(usersMapping, "user", "friend"))
	if got := second.today().recalled; !slices.Equal(got, []string{"users.yaml"}) {
		t.Errorf("recalled: %q", got)
	}
	os.RemoveAll(second.dir) // takes nothing off the topic
	second.hup <- os.Interrupt
	waitFor(t, "the folder to fail", func() bool { return second.log.Count("the mappings folder fails") == 1 })
	third := startProcess(t, c, "users.yaml", usersMapping, "orders.yaml", ordersMapping+"# 2\n")
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "4 "+ordersMapping+"# 2\n", "new.yaml", "gone 2 "+strings.ReplaceAll(usersMapping, "user", "friend"))
	if third.fingerprint() == second.fingerprint() {
		t.Error("two sets have one fingerprint")
	}
}

// A process with an older folder writes that down when it starts; those that have the newer one put it right though nothing changes
// there. What it thought to be gone comes back, and what only it had is gone.
func TestOlderFolderIsPutRight(t *testing.T) {
	c := changelogtest.Start(t)
	friends := strings.ReplaceAll(usersMapping, "user", "friend")
	older := startProcess(t, c, "users.yaml", usersMapping, "old.yaml", friends)
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "old.yaml", "1 "+friends)
	older.stop()
	newer := startProcess(t, c, "users.yaml", usersMapping+"# 2\n", "orders.yaml", ordersMapping)
	wantTopic(t, c, "users.yaml", "2 "+usersMapping+"# 2\n", "old.yaml", "gone 2 "+friends, "orders.yaml", "1 "+ordersMapping)
	newer.stop()
	older = startProcess(t, c, "users.yaml", usersMapping, "old.yaml", friends)
	wantTopic(t, c, "users.yaml", "3 "+usersMapping, "old.yaml", "3 "+friends, "orders.yaml", "gone 2 "+ordersMapping)
	older.stop()
	newer = startComparing(t, c, 50*time.Millisecond, "users.yaml", usersMapping+"# 2\n", "orders.yaml", ordersMapping)
	wantTopic(t, c, "users.yaml", "4 "+usersMapping+"# 2\n", "old.yaml", "gone 4 "+friends, "orders.yaml", "3 "+ordersMapping)
	startProcess(t, c, "users.yaml", usersMapping, "old.yaml", friends)
	wantTopic(t, c, "users.yaml", "6 "+usersMapping+"# 2\n", "old.yaml", "gone 6 "+friends, "orders.yaml", "5 "+ordersMapping)
	if newer.log.Count("mappings reloaded") > 0 {
		t.Error("the folder of the newer one changed")
	}
}

// What a process has in force though its folder fails was written down once: it does not stand against what others write.
func TestFailingFolderDoesNotOverwrite(t *testing.T) {
	c := changelogtest.Start(t)
	p := startComparing(t, c, 50*time.Millisecond, "users.yaml", usersMapping, "orders.yaml", ordersMapping)
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "1 "+ordersMapping)
	write(t, p.dir, "users.yaml", broken)
	p.hup <- os.Interrupt
	waitFor(t, "the file to fail", func() bool { return p.log.Count("its last good form stays in force") == 1 })
	recalled := startComparing(t, c, 50*time.Millisecond, "users.yaml", broken, "orders.yaml", ordersMapping)
	startProcess(t, c, "users.yaml", usersMapping+"# 2\n", "orders.yaml", ordersMapping)
	wantTopic(t, c, "users.yaml", "2 "+usersMapping+"# 2\n", "orders.yaml", "1 "+ordersMapping)
	for _, text := range []string{"# 2\n", "# 3\n", "# 4\n"} { // they write what is theirs to say
		for _, q := range []*fleetProcess{p, recalled} {
			write(t, q.dir, "orders.yaml", ordersMapping+text)
			q.hup <- os.Interrupt
		}
		waitFor(t, "the other file to be written", func() bool { return strings.HasSuffix(topic(t, c)["orders.yaml"], text) })
	}
	if got := topic(t, c)["users.yaml"]; got != "2 "+usersMapping+"# 2\n" {
		t.Errorf("users.yaml is %q", got)
	}
}

func (p *fleetProcess) fingerprint() string { return p.today().set.Fingerprint() }

// A file that is long gone is forgotten, and so is nothing else.
func TestLongGoneIsForgotten(t *testing.T) {
	c := changelogtest.Start(t)
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for name, gone := range map[string]time.Duration{"old.yaml": goneKept + time.Hour, "young.yaml": goneKept - time.Hour} {
		f := changelog.MappingFile{Name: name, Team: "t", Text: ordersMapping, Since: day, Gone: time.Now().Add(-gone)}
		if err := store.PutMapping(t.Context(), "fleet", f, changelog.SavedMapping{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Put(t.Context(), changelog.StateKey("mappings", "fleet", "newer.yaml", "1"), []byte(`{"v":2}`)); err != nil {
		t.Fatal(err)
	}
	startProcess(t, c, "users.yaml", usersMapping)
	waitFor(t, "the old file to be forgotten", func() bool {
		st, err := store.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := st.LoadMappings("fleet")
		return len(all) == 3 && all["old.yaml"].Name == "" && all["users.yaml"].Generation == 1 && all["young.yaml"].Generation == 1 && all["newer.yaml"].Err != nil
	})
}

// A topic that cannot be read is waited for before anything is in force; one that cannot be written is tried again.
func TestStateTopicIsAway(t *testing.T) {
	c := changelogtest.Start(t)
	startProcess(t, c, "users.yaml", usersMapping)
	wantTopic(t, c, "users.yaml", "1 "+usersMapping)
	var reads, writes atomic.Int64
	c.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Default()
		return refusedOffsets(c, resp), nil, reads.Add(1) == 1
	})
	c.ControlKey(kmsg.Produce.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return refusedProduce(r.(*kmsg.ProduceRequest)), nil, writes.Add(1) == 1
	})
	p := startProcess(t, c, "users.yaml", broken, "orders.yaml", ordersMapping)
	p.wantLog(t, "nothing starts before", 1)
	if n := len(p.today().set.Files()); n != 2 {
		t.Errorf("%d files are in force", n)
	}
	wantTopic(t, c, "users.yaml", "1 "+usersMapping, "orders.yaml", "1 "+ordersMapping)
	p.wantLog(t, "writing down which mappings are good", 1)
}

func refusedOffsets(c *changelogtest.Cluster, resp *kmsg.ListOffsetsResponse) kmsg.Response {
	rt := kmsg.NewListOffsetsResponseTopic()
	rt.Topic = c.Names.State
	for p := range int32(8) {
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition, rp.ErrorCode = p, kerr.TopicAuthorizationFailed.Code
		rt.Partitions = append(rt.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, rt)
	return resp
}

func refusedProduce(r *kmsg.ProduceRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range r.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// A file that no record holds is told once, and the others are written down all the same.
func TestLargeFileIsTold(t *testing.T) {
	c := changelogtest.Start(t)
	p := startProcess(t, c, "large.yaml", usersMapping+"# "+strings.Repeat("x", changelog.DefaultMaxMessageBytes)+"\n", "orders.yaml", ordersMapping)
	wantTopic(t, c, "orders.yaml", "1 "+ordersMapping)
	write(t, p.dir, "orders.yaml", ordersMapping+"# 2\n")
	p.hup <- os.Interrupt
	wantTopic(t, c, "orders.yaml", "2 "+ordersMapping+"# 2\n")
	p.wantLog(t, "too large to be written down", 1)
}

// A process that is told to end while it waits for the topic ends.
func TestOpenEndsWithItsContext(t *testing.T) {
	c := changelogtest.Start(t)
	c.Close()
	store, err := changelog.OpenState(c.Options, c.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := newMappings(parse(t, t.TempDir(), "kafka: {group: fleet}\n"), obs.NewRegistry(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := m.open(ctx, store); err == nil || ctx.Err() == nil || m.today().set != nil {
		t.Errorf("got %v", err)
	}
}
