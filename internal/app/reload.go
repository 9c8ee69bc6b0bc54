package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
)

const (
	// reloadQuiet is how long no notice may come before the folder is read: files that are copied one by one belong together.
	reloadQuiet = 500 * time.Millisecond
	// reloadLatest is when it is read though notices go on coming.
	reloadLatest = 5 * time.Second
	// reloadPoll is how often it is read where no notice comes: network file systems send none, nor does a folder whose link was swapped.
	reloadPoll = 5 * time.Second
)

// mappings are the teams' files as a process has them in force: one immutable set, replaced as a whole.
type mappings struct {
	dir, fleet string
	log        *slog.Logger
	reloads    prometheus.Counter
	unsaved    chan struct{} // 1: what is in force, or fails, changed
	saveEvery  time.Duration // lastGoodEvery
	archive    *archive      // has each set before it comes into force; nil: nobody asks for sets that were in force (a feeder)

	// Run's own, and before it open's.
	problems []mapping.Problem // of the folder when it could last be read
	told     map[string]bool   // problems that were logged and stand
	unkept   string            // fingerprint of the set that could not be archived, as was logged
	store    *changelog.StateStore
	saved    map[string]changelog.SavedMapping // on the state topic when the process started

	mu    sync.Mutex // guards what follows
	state mappingsState
}

// mappingsState is what a process shows of its mappings.
type mappingsState struct {
	set      *mapping.Set // nil: none yet
	since    time.Time    // when set came into force
	failing  []string     // files whose text in the folder is not in force, sorted; the folder itself where it cannot be read
	recalled []string     // files in force whose text the process has from the state topic, not from the folder, sorted
}

// newMappings has nothing in force yet: open does.
func newMappings(c *config.Config, r prometheus.Registerer, log *slog.Logger) (*mappings, error) {
	m := &mappings{
		dir: c.Mappings.Dir, fleet: c.Kafka.Group, log: log, reloads: prometheus.NewCounter(reloadsOpts), unsaved: make(chan struct{}, 1),
		saveEvery: lastGoodEvery,
	}
	return m, m.register(r)
}

// today is what is in force.
func (m *mappings) today() mappingsState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Run follows the folder until ctx ends: it is read when it has changed, and at each hup. swap is called with each set that comes
// into force, one at a time. What is in force is written down on the state topic.
func (m *mappings) Run(ctx context.Context, hup <-chan os.Signal, swap func(*mapping.Set)) {
	if m.store != nil {
		var saver sync.WaitGroup
		saver.Go(func() { m.save(ctx) })
		defer saver.Wait()
	}
	notices, err := fsnotify.NewWatcher()
	if err != nil {
		m.log.Error("watching the mappings folder: it is read from time to time instead (raise fs.inotify.max_user_instances)", "every", reloadPoll, "error", err)
		m.follow(ctx, nil, nil, hup, func() error { return nil }, swap)
		return
	}
	defer notices.Close()
	m.follow(ctx, notices.Events, notices.Errors, hup, func() error { return notices.Add(m.dir) }, swap)
}

// start is Run until the returned function is called, which waits for its end. It goes on while the process drains.
func (m *mappings) start(ctx context.Context, hup <-chan os.Signal, swap func(*mapping.Set)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx, hup, swap) })
	return func() { cancel(); running.Wait() }
}

// follow is Run over anybody's notices. watch asks for them, again and again: a folder that was replaced has lost its watch.
func (m *mappings) follow(ctx context.Context, events <-chan fsnotify.Event, lost <-chan error, hup <-chan os.Signal, watch func() error, swap func(*mapping.Set)) {
	quiet := time.NewTimer(0) // the first look is after the first watch, so that no change falls between
	defer quiet.Stop()
	var latest time.Time // until when notices may put the next look off; zero: none is to come
	tick := time.NewTicker(reloadPoll)
	defer tick.Stop()
	blind := m.watch(watch, false)
	notice := func() {
		now := time.Now()
		if latest.IsZero() {
			latest = now.Add(reloadLatest)
		}
		quiet.Reset(min(reloadQuiet, latest.Sub(now)))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			notice()
		case <-lost:
			notice()
		case <-quiet.C:
			latest = time.Time{}
			m.reload(ctx, swap)
		case <-tick.C:
			if blind = m.watch(watch, blind); latest.IsZero() {
				m.reload(ctx, swap)
			}
		case <-hup:
			if !m.reload(ctx, swap) {
				m.log.Info("mappings read on SIGHUP: nothing to change", "fingerprint", m.today().set.Fingerprint())
			}
		}
	}
}

// watch asks for notices, and tells once when there are none.
func (m *mappings) watch(watch func() error, blind bool) bool {
	err := watch()
	if err != nil && !blind {
		m.log.Warn("watching the mappings folder: until this works it is read from time to time", "every", reloadPoll, "error", err)
	}
	return err != nil
}

// reload reads the folder and puts in force what is good in it. It reports whether anything changed.
func (m *mappings) reload(ctx context.Context, swap func(*mapping.Set)) bool {
	before := m.today().set
	set, problems, err := before.Reload(m.dir)
	if set != before && !m.keep(ctx, set) {
		return false
	}
	if err != nil {
		problems = append(slices.Clone(m.problems), m.folderFails(err))
	} else {
		m.problems = problems
	}
	m.tell(set, problems)
	if set == before {
		return false
	}
	swap(set)
	m.mu.Lock()
	m.state.set, m.state.since = set, time.Now()
	m.mu.Unlock()
	m.changed()
	m.reloads.Inc()
	var teams, files []string
	for _, c := range set.Since(before) {
		teams, files = append(teams, c.Team), append(files, c.File+" "+c.How)
	}
	slices.Sort(teams)
	m.log.Info("mappings reloaded", "fingerprint", set.Fingerprint(), "before", before.Fingerprint(), "teams", slices.Compact(teams), "files", files)
	return true
}

// keep archives a set that is to come into force. It reports whether it may: what is issued under a set that stands nowhere could not be
// issued again. Until then the set before stays in force, and the folder is read again before long.
func (m *mappings) keep(ctx context.Context, set *mapping.Set) bool {
	if m.archive == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, archiveTimeout)
	defer cancel()
	err := m.archive.keep(ctx, set, nil)
	if err == nil {
		m.unkept = ""
		return true
	}
	if m.unkept != set.Fingerprint() && !errors.Is(err, context.Canceled) {
		m.unkept = set.Fingerprint()
		m.log.Error("the mappings folder changed, and the new set cannot be written down: what was in force before stays, and it is tried again",
			"fingerprint", set.Fingerprint(), "in_force", m.today().set.Fingerprint(), "error", err, "every", reloadPoll)
	}
	return false
}

func (m *mappings) folderFails(err error) mapping.Problem {
	return mapping.Problem{File: m.dir, Severity: mapping.SeverityError, What: err.Error()}
}

// tell logs each problem of the folder when it begins, and says which files are over theirs. set is what comes into force.
func (m *mappings) tell(set *mapping.Set, problems []mapping.Problem) {
	now := map[string]bool{}
	var failing []string
	for _, p := range problems {
		text := p.String()
		now[text] = true
		if p.Severity == mapping.SeverityError {
			failing = append(failing, filepath.Base(p.File))
		}
		if m.told[text] {
			continue
		}
		switch inForce := slices.ContainsFunc(set.Files(), func(f *mapping.File) bool { return f.Name == p.File }); {
		case p.Severity != mapping.SeverityError:
			m.log.Warn("a mapping file has a warning", "problem", text)
		case p.File == m.dir:
			m.log.Error("the mappings folder fails: what was last good stays in force", "problem", text)
		case inForce:
			m.log.Error("a mapping file fails: its last good form stays in force", "problem", text)
		default:
			m.log.Error("a mapping file is left out", "problem", text)
		}
	}
	m.told = now
	slices.Sort(failing)
	failing = slices.Compact(failing)
	m.mu.Lock()
	before := m.state.failing
	m.state.failing = failing
	if !m.state.folderFails(m.dir) {
		m.state.recalled = slices.DeleteFunc(slices.Clone(m.state.recalled), func(f string) bool { return !slices.Contains(failing, f) })
	}
	m.mu.Unlock()
	if !slices.Equal(before, failing) {
		m.changed()
	}
	for _, f := range before {
		if !slices.Contains(failing, f) {
			m.log.Info("a mapping file fails no more", "file", f)
		}
	}
}

const failingHelp = "Mapping files whose text in the folder is not in force: their last good form is, or nothing."
const recallHelp = "Mapping files in force whose text is the last good one of the state topic: the process started without a good one in the folder."

// folderFails reports whether the folder itself cannot be read.
func (s *mappingsState) folderFails(dir string) bool {
	return slices.Contains(s.failing, filepath.Base(dir))
}

// What /metrics shows of the mappings. The fingerprint is a label of one series a process: alerts count how many a fleet has.
var (
	infoDesc = prometheus.NewDesc("invalidator_mappings_info", "The set of mapping files in force, by its fingerprint; the fleet is the consumer group.",
		[]string{"fleet", "fingerprint"}, nil)
	filesDesc   = prometheus.NewDesc("invalidator_mappings_files", "Mapping files in force.", nil, nil)
	failingDesc = prometheus.NewDesc("invalidator_mappings_files_in_error", failingHelp, nil, nil)
	recallDesc  = prometheus.NewDesc("invalidator_mappings_files_recalled", recallHelp, nil, nil)
	reloadsOpts = prometheus.CounterOpts{Name: "invalidator_mappings_reloads_total", Help: "Sets of mapping files that came into force after the first."}
)

func (m *mappings) register(r prometheus.Registerer) error {
	if err := errors.Join(r.Register(m), r.Register(m.reloads)); err != nil {
		return fmt.Errorf("registering the mappings' metrics: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (m *mappings) Describe(ch chan<- *prometheus.Desc) {
	ch <- infoDesc
	ch <- filesDesc
	ch <- failingDesc
	ch <- recallDesc
}

// Collect implements prometheus.Collector.
func (m *mappings) Collect(ch chan<- prometheus.Metric) {
	s := m.today()
	if s.set == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, m.fleet, s.set.Fingerprint())
	ch <- prometheus.MustNewConstMetric(filesDesc, prometheus.GaugeValue, float64(len(s.set.Files())))
	ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, float64(len(s.failing)))
	ch <- prometheus.MustNewConstMetric(recallDesc, prometheus.GaugeValue, float64(len(s.recalled)))
}
