package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/internal/obs/obstest"
	"invalidator/mapping"
)

// folder is a mappings folder with the files users.yaml and orders.yaml, as a process has it in force.
type folder struct {
	*mappings
	log     obstest.Log
	metrics *prometheus.Registry
	swaps   atomic.Int64 // sets that came into force
	hup     chan os.Signal
	events  chan fsnotify.Event
	lost    chan error
}

const ordersMapping = "version: 1\nteam: orders\npools: [order]\nmappings:\n  - name: order\n    table: shop.orders\n    keys: ['order:{id}']\n"

func openFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	c := parse(t, dir, "kafka: {group: fleet}\n")
	write(t, c.Mappings.Dir, "users.yaml", usersMapping)
	write(t, c.Mappings.Dir, "orders.yaml", ordersMapping)
	f := &folder{metrics: obs.NewRegistry(), hup: make(chan os.Signal, 1), events: make(chan fsnotify.Event), lost: make(chan error)}
	f.mappings = beginMappings(t, c, f.metrics, slog.New(slog.NewTextHandler(&f.log, nil)), nil)
	return f
}

// beginMappings puts the folder in force over what the state topic says.
func beginMappings(t *testing.T, c *config.Config, r *prometheus.Registry, log *slog.Logger, saved map[string]changelog.SavedMapping) *mappings {
	t.Helper()
	m, err := newMappings(c, r, log)
	if err == nil {
		err = m.begin(saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// watched follows the folder over notices that the test sends.
func (f *folder) watched(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.follow(ctx, f.events, f.lost, f.hup, func() error { _, err := os.Stat(f.dir); return err }, func(*mapping.Set) { f.swaps.Add(1) })
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
}

func (f *folder) wantSwaps(t *testing.T, n int64) {
	t.Helper()
	synctest.Wait()
	if got := f.swaps.Load(); got != n {
		t.Fatalf("%d sets came into force, want %d\n%s", got, n, f.log.String())
	}
}

// wantLog wants a part of the log n times.
func (f *folder) wantLog(t *testing.T, part string, n int) {
	t.Helper()
	if got := f.log.Count(part); got != n {
		t.Errorf("the log says %q %d times, want %d\n%s", part, got, n, f.log.String())
	}
}

// value is what /metrics shows under a name.
func (f *folder) value(t *testing.T, name string) float64 {
	t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, fam := range families {
		if m := fam.GetMetric(); fam.GetName() == name && len(m) == 1 {
			return m[0].GetGauge().GetValue() + m[0].GetCounter().GetValue()
		}
	}
	return -1
}

const more = "      - 'user:by-email:{email}'\n"

// Files that are copied one by one go in together, when no notice has come for a while, or at the latest after five seconds.
func TestReloadWaitsForQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFolder(t)
		f.watched(t)
		write(t, f.dir, "users.yaml", strings.Replace(usersMapping, "keys: ['user:{id}']", "keys:\n      - 'user:{id}'\n"+more, 1))
		f.events <- fsnotify.Event{}
		time.Sleep(reloadQuiet - 1)
		f.events <- fsnotify.Event{}
		time.Sleep(reloadQuiet - 1)
		f.wantSwaps(t, 0)
		time.Sleep(time.Nanosecond)
		f.wantSwaps(t, 1)
		f.wantLog(t, `teams=[profiles] files="[users.yaml changed]"`, 1)

		os.Remove(filepath.Join(f.dir, "orders.yaml"))
		for began := time.Now(); time.Since(began) < reloadLatest; time.Sleep(reloadQuiet / 2) {
			f.lost <- errors.New("too many")
			f.wantSwaps(t, 1)
		}
		f.wantSwaps(t, 2)
		f.wantLog(t, `teams=[orders] files="[orders.yaml removed]"`, 1)
	})
}

// A file that breaks is told once, stays in force as it was, and others go in; that it is mended is told once.
func TestReloadKeepsTheLastGoodFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFolder(t)
		f.watched(t)
		write(t, f.dir, "users.yaml", "version: 1\nteam: profiles\npools: [user, order]\ntable: x\n")
		write(t, f.dir, "new.yaml", strings.ReplaceAll(usersMapping, "user", "friend"))
		write(t, f.dir, "thief.yaml", usersMapping)
		time.Sleep(10 * reloadPoll)
		f.wantSwaps(t, 1)
		f.wantLog(t, "its last good form stays in force", 1)
		f.wantLog(t, "a mapping file is left out", 1)
		f.wantLog(t, "thief.yaml:4:9: pool", 1)
		for name, want := range map[string]float64{"invalidator_mappings_files": 3, "invalidator_mappings_files_in_error": 2, "invalidator_mappings_reloads_total": 1, "invalidator_mappings_info": 1} {
			if got := f.value(t, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}

		write(t, f.dir, "users.yaml", usersMapping)
		os.Remove(filepath.Join(f.dir, "thief.yaml"))
		time.Sleep(10 * reloadPoll)
		f.wantSwaps(t, 1) // it is in force as it was
		f.wantLog(t, "a mapping file fails no more", 2)
		if failing := f.today().failing; len(failing) > 0 {
			t.Errorf("still failing: %q", failing)
		}
	})
}

// A folder that goes leaves everything in force, is told once, and what is wrong in it is not told to be over.
func TestReloadSurvivesTheFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFolder(t)
		f.watched(t)
		write(t, f.dir, "users.yaml", "x\n")
		time.Sleep(2 * reloadPoll)
		if err := os.Rename(f.dir, f.dir+"-away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * reloadPoll)
		f.wantSwaps(t, 0)
		f.wantLog(t, "the mappings folder fails", 1)
		f.wantLog(t, "watching the mappings folder", 1)
		f.wantLog(t, "fails no more", 0)
		if err := os.Rename(f.dir+"-away", f.dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reloadPoll)
		synctest.Wait()
		f.wantLog(t, "fails no more", 1)
	})
}

// A link to the whole folder is followed where it leads now, without a notice.
func TestReloadFollowsALinkToTheFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFolder(t)
		if err := os.Rename(f.dir, f.dir+"-1"); err != nil {
			t.Fatal(err)
		}
		link(t, f.dir+"-1", f.dir)
		f.watched(t)
		if err := os.Mkdir(f.dir+"-2", 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, f.dir+"-2", "orders.yaml", ordersMapping+"# 2\n")
		link(t, f.dir+"-2", f.dir)
		time.Sleep(reloadPoll)
		f.wantSwaps(t, 1)
		f.wantLog(t, `files="[orders.yaml changed users.yaml removed]"`, 1)
	})
}

// SIGHUP reads at once, and is answered in the log also where there is nothing to change.
func TestReloadOnHup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFolder(t)
		f.watched(t)
		f.hup <- os.Interrupt
		f.wantSwaps(t, 0)
		f.wantLog(t, "mappings read on SIGHUP: nothing to change", 1)
		write(t, f.dir, "orders.yaml", ordersMapping+"    # changed\n")
		f.hup <- os.Interrupt
		f.wantSwaps(t, 1)
		f.wantLog(t, "nothing to change", 1)
	})
}

// Real notices, of files and of a ConfigMap's links, bring a change in force long before it is read without one.
func TestReloadOnNotice(t *testing.T) {
	f := openFolder(t)
	configMap(t, f.dir, "1", map[string]string{"users.yaml": usersMapping, "orders.yaml": ordersMapping})
	for _, name := range []string{"users.yaml", "orders.yaml"} {
		link(t, filepath.Join("..data", name), filepath.Join(f.dir, name))
	}
	sets := make(chan *mapping.Set, 10)
	defer f.start(t.Context(), f.hup, func(s *mapping.Set) { sets <- s })()
	f.hup <- os.Interrupt
	waitFor(t, "the folder to be watched and read", func() bool { return f.log.Count("nothing to change") == 1 })
	for _, step := range []func(){
		func() { write(t, f.dir, "new.yaml", strings.ReplaceAll(usersMapping, "user", "friend")) },
		func() {
			configMap(t, f.dir, "2", map[string]string{"users.yaml": usersMapping + "# 2\n", "orders.yaml": ordersMapping + "# 2\n"})
		},
	} {
		began := time.Now()
		step()
		waitFor(t, "a set to come into force", func() bool { return len(sets) > 0 })
		t.Logf("in force after %s: %s", time.Since(began), (<-sets).Fingerprint())
	}
	// It is told after it came into force.
	waitFor(t, "the log to name both files", func() bool { return f.log.Count(`files="[orders.yaml changed users.yaml changed]"`) == 1 })
}

// configMap swaps the link ..data as a kubelet does.
func configMap(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, ".."+version), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, filepath.Join(dir, ".."+version), name, text)
	}
	link(t, ".."+version, filepath.Join(dir, "..data"))
}

// link puts a link in the place of whatever is there, at one stroke.
func link(t *testing.T, to, at string) {
	t.Helper()
	if err := errors.Join(os.Symlink(to, at+"_tmp"), os.Rename(at+"_tmp", at)); err != nil {
		t.Fatal(err)
	}
}

// A feeder's slim records keep what the mappings in force name, also for a source that runs already.
func TestFeederKeepsWhatIsInForce(t *testing.T) {
	set := func(text string) *mapping.Set {
		f, problems := mapping.Parse("users.yaml", []byte(text))
		if mapping.HasErrors(problems) {
			t.Fatal(problems)
		}
		s, _ := mapping.NewSet([]*mapping.File{f})
		return s
	}
	c := parse(t, t.TempDir(), "sources: [{name: shop, type: mysql, hosts: [a:1], user: u, include: [shop.*]}]\n")
	var keep atomic.Pointer[kept]
	keep.Store(&kept{set: set(usersMapping)})
	sources, err := (&Feed{Config: c, Log: quiet}).sources(&keep, nil)
	if err != nil {
		t.Fatal(err)
	}
	users := cdc.TableID{Schema: "shop", Table: "users"}
	if got := sources[0].Keep(users); !slices.Equal(got, []string{"id"}) {
		t.Errorf("kept %q", got)
	}
	keep.Store(&kept{set: set(strings.Replace(usersMapping, "{id}", "{id}:{email}", 1))})
	if got := sources[0].Keep(users); !slices.Equal(got, []string{"id", "email"}) {
		t.Errorf("kept %q after a reload", got)
	}
	if got := sources[0].Keep(cdc.TableID{Schema: "shop", Table: "other"}); got != nil {
		t.Errorf("kept %q of a table that nobody maps", got)
	}
}
