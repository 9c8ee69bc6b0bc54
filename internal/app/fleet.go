package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
)

const (
	// processLost is how long a process may be silent before it counts as lost.
	processLost = 5 * processEvery
	// mappingsDiffer is how long two sets of mappings may stand side by side in a fleet: a rollout takes its time.
	mappingsDiffer = time.Minute
)

// Process is one worker or feeder, as it last said itself how it is. Its JSON form is stable.
type Process struct {
	ID       string          `json:"process"`
	Role     string          `json:"role"` // worker or feeder
	Host     string          `json:"host"`
	Version  string          `json:"version"`
	Started  time.Time       `json:"started"`
	At       time.Time       `json:"at"`   // when it said so, by its own clock
	Lost     bool            `json:"lost"` // silent for over 10 s
	Mappings ProcessMappings `json:"mappings"`
	Ring     *registryRecord `json:"ring,omitempty"`   // a worker's
	Off      []NodeOff       `json:"off,omitempty"`    // a worker's: the nodes that are off its live path
	Paying   []PassNow       `json:"paying,omitempty"` // a worker's: the passes over the log that it runs
	Wrong    []string        `json:"wrong,omitempty"`  // a feeder's: what a person must act on, but for gaps
}

// ProcessMappings are the mapping files that a process has in force.
type ProcessMappings struct {
	Fingerprint string    `json:"fingerprint"`
	Since       time.Time `json:"since"`    // when they came into force there, by its own clock
	Failing     []string  `json:"failing"`  // files whose text in the folder is not in force
	Recalled    []string  `json:"recalled"` // of those in force, which are as the state topic had them
}

func (p Process) name() string { return p.Role + " " + p.ID }

// settled says whether the mappings have been in force for over a minute. Both times are of the process's own clock.
func (p Process) settled() bool { return p.At.Sub(p.Mappings.Since) > mappingsDiffer }

// Fleet is what the topics say of a consumer group: its processes (the workers, then the feeders, each by name), what is owed and how far it is, and what needs a person.
type Fleet struct {
	Group     string
	Processes []Process
	Owing     []Owing           // what is owed: nodes first, then by kind and name
	Lags      []PartitionLag    // of the partitions that the group has a commit of
	Works     []Work            // replays, flushes and what changes of the ring make done again, that are not over
	Paused    []changelog.Pause // pools, by name
	Gaps      []*gap.Case       // that stand: nobody has decided, or what was decided is not done; the flush that was asked for lately included
	Parked    Parked            // records
	Findings  []Finding         // an error is what needs a person
}

// ReadFleet is one look of a FleetReader.
func ReadFleet(ctx context.Context, c *config.Config, log *slog.Logger) (Fleet, error) {
	r, err := OpenFleet(ctx, c, log)
	if err != nil {
		return Fleet{}, err
	}
	defer r.Close()
	return r.Read(ctx)
}

// FleetReader asks Kafka alone, and no member. Its first look reads the state topic whole, and each later one what came since. It is for one goroutine.
type FleetReader struct {
	kafka   changelog.Options
	names   changelog.Names
	group   string
	maxTTL  time.Duration
	sources []*pipeline.Source // to say whose a topic is; none where the configuration has none
	store   *changelog.StateStore
	mirror  *changelog.StateMirror
	cl      *kgo.Client
	log     *slog.Logger
	works   *worksReader // nil: not yet

	before   map[string]spoken // what was said at some look before
	beforeAt time.Time
	parked   Parked
	parkedAt time.Time
}

// OpenFleet asks for a broker; Close it.
func OpenFleet(ctx context.Context, c *config.Config, log *slog.Logger) (*FleetReader, error) {
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, err
	}
	r, err := openFleet(ctx, o, changelog.NamesFor(c.Kafka.TopicPrefix), c.Kafka.Group, log)
	if err != nil {
		return nil, err
	}
	r.maxTTL = c.Cache.MaxTTL
	r.sources, _, err = topicsOf(c)
	if err != nil {
		log.Debug("topics are shown without their sources", "error", err)
	}
	return r, nil
}

func openFleet(ctx context.Context, o changelog.Options, names changelog.Names, group string, log *slog.Logger) (*FleetReader, error) {
	store, err := openStateToRead(ctx, o, names.State)
	if err != nil {
		return nil, err
	}
	r := &FleetReader{kafka: o, names: names, group: group, store: store, log: log}
	if r.cl, err = o.Client(); err != nil {
		store.Close()
		return nil, err
	}
	if r.mirror, err = store.Mirror(r.wanted()); err != nil {
		r.cl.Close()
		store.Close()
		return nil, err
	}
	return r, nil
}

// Close lets go of the connections.
func (r *FleetReader) Close() {
	if r.works != nil {
		r.works.close()
	}
	r.mirror.Close()
	r.cl.Close()
	r.store.Close()
}

// wanted chooses the keys of the state topic that are looked at.
func (r *FleetReader) wanted() func(key []byte) bool {
	var all []func([]byte) bool
	for _, parts := range [][]string{{"process"}, {"pause", r.group}, {"partition", r.group}, {"ring", r.group}, {"gap"}, {"gap-accepted"}, {"gap-passed"}, {"deadletter"}} {
		all = append(all, changelog.KeysUnder(parts...))
	}
	return func(key []byte) bool {
		return slices.ContainsFunc(all, func(under func([]byte) bool) bool { return under(key) })
	}
}

// Read looks. Processes that have been silent for an hour are left out.
func (r *FleetReader) Read(ctx context.Context) (Fleet, error) {
	f, st, err := r.processes(ctx)
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*checkTimeout)
	defer cancel()
	if err := r.readWorks(ctx, &f, st); err != nil {
		return f, err
	}
	if err := r.readOwing(ctx, &f, st); err != nil {
		return f, err
	}
	if err := r.readParked(ctx, &f, st); err != nil {
		return f, err
	}
	now := time.Now()
	f.readGaps(st, now)
	f.judgeOwing(now, r.maxTTL)
	f.judgeWorks(now)
	f.judgeParked()
	return f, nil
}

// readFleet is a look at the processes and the paused pools alone.
func readFleet(ctx context.Context, o changelog.Options, topic, group string) (Fleet, error) {
	r, err := openFleet(ctx, o, changelog.Names{State: topic}, group, slog.New(slog.DiscardHandler))
	if err != nil {
		return Fleet{}, err
	}
	defer r.Close()
	f, _, err := r.processes(ctx)
	return f, err
}

// processes reads the state topic. Where a process looks lost at the first look, it looks again after two of its beats, since then it is the clocks that differ if it has
// spoken meanwhile.
func (r *FleetReader) processes(ctx context.Context) (Fleet, *changelog.State, error) {
	st, err := r.state(ctx)
	if err != nil {
		return Fleet{}, nil, err
	}
	all, bad := processesOf(st)
	f := fleetOf(r.group, all, r.before, time.Now())
	if r.before == nil && slices.ContainsFunc(f.Processes, func(p Process) bool { return p.Lost }) {
		r.before, r.beforeAt = all, time.Now()
		select {
		case <-ctx.Done():
			return Fleet{}, nil, ctx.Err()
		case <-time.After(2 * processEvery):
		}
		if st, err = r.state(ctx); err != nil {
			return Fleet{}, nil, err
		}
		all, bad = processesOf(st)
		f = fleetOf(r.group, all, r.before, time.Now())
	}
	if r.before == nil || time.Since(r.beforeAt) >= 2*processEvery {
		r.before, r.beforeAt = all, time.Now()
	}
	paused, badPauses := pausedOf(st, r.group)
	f.Paused, f.Findings = paused, slices.Concat(badPauses, bad, f.Findings)
	return f, st, nil
}

func (r *FleetReader) state(ctx context.Context) (*changelog.State, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return r.mirror.Read(ctx)
}

// pausedOf are the pools of a group that are paused, and what is wrong with records that cannot be read.
func pausedOf(st *changelog.State, group string) (paused []changelog.Pause, bad []Finding) {
	all, err := st.LoadPauses(group)
	if err != nil {
		bad = failed("pause", err)
	}
	for _, pool := range slices.Sorted(maps.Keys(all)) {
		if all[pool].Paused {
			paused = append(paused, all[pool])
		}
	}
	return paused, bad
}

// openStateToRead says that a broker is away, in place of waiting for it.
func openStateToRead(ctx context.Context, o changelog.Options, topic string) (*changelog.StateStore, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cl, err := o.Connect(ctx)
	if err != nil {
		return nil, err
	}
	cl.Close()
	return changelog.OpenState(o, topic)
}

// spoken is a process's last word, and where it lies: a later word lies elsewhere.
type spoken struct {
	processRecord
	changelog.Location
}

// processesOf are the processes of every group by their id, and what is wrong with records that cannot be read.
func processesOf(st *changelog.State) (map[string]spoken, []Finding) {
	var bad []Finding
	all := map[string]spoken{}
	for key, e := range st.Under("process") {
		r, err := parseProcess(e)
		if err != nil {
			bad = append(bad, failed("process", st.BadRecord(key, e, err))...)
			continue
		}
		all[strings.TrimPrefix(key, "process/")] = spoken{r, e.Location}
	}
	return all, bad
}

// fleetOf picks the group's processes. One that has spoken since before is alive, whatever the clocks say.
func fleetOf(group string, all, before map[string]spoken, now time.Time) Fleet {
	f := Fleet{Group: group}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		r := all[id]
		silent := now.Sub(r.At)
		if old, ok := before[id]; ok && old.Location != r.Location {
			silent = 0
		}
		if r.Group != group || silent > processForget {
			continue
		}
		m := r.Mappings
		f.Processes = append(f.Processes, Process{
			ID: id, Role: r.Role, Host: r.Host, Version: r.Version, Started: r.Started, At: r.At, Lost: silent > processLost,
			Mappings: ProcessMappings{m.Fingerprint, m.Since, append([]string{}, m.Failing...), append([]string{}, m.Recalled...)}, Ring: r.Ring, Off: r.Off, Paying: r.Paying, Wrong: r.Wrong,
		})
	}
	slices.SortStableFunc(f.Processes, func(a, b Process) int { return strings.Compare(b.Role, a.Role) })
	f.judge()
	return f
}

func parseProcess(e changelog.Entry) (processRecord, error) {
	var r processRecord
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return r, err
	}
	if r.V != 1 {
		return r, fmt.Errorf("format %d is unknown", r.V)
	}
	return r, nil
}

func (f *Fleet) fail(where, what string) {
	f.Findings = append(f.Findings, Finding{string(cdc.SeverityError), where, what})
}

// judge adds what needs a person.
func (f *Fleet) judge() {
	worker := false
	instead := f.successors()
	for i, p := range f.Processes {
		if p.Lost {
			what := fmt.Sprintf("lost: it last spoke at %s (it was killed, hangs, or cannot reach Kafka)", p.At.UTC().Format(time.DateTime))
			if next, ok := instead[i]; ok {
				f.warn(p.name(), what+"; "+f.Processes[next].name()+" has started since")
			} else {
				f.fail(p.name(), what)
			}
			continue
		}
		worker = worker || p.Role == roleWorker
		for _, what := range p.Wrong {
			f.fail(p.name(), what)
		}
		for _, file := range p.Mappings.Failing {
			instead := "its last good form is, or nothing"
			if slices.Contains(p.Mappings.Recalled, file) {
				instead = "its last good form is, as the state topic had it"
			}
			f.fail(p.name(), fmt.Sprintf("%s is not in force as it stands now: %s (its log has the reason; so has: invalidator mappings check DIR)", file, instead))
		}
	}
	if !worker {
		f.fail("fleet "+f.Group, "no worker runs: nothing is deleted")
	}
	f.judgeFingerprints()
}

// successors are, by places in Processes, which process stands for one that is lost: of the same role, and begun after that one last spoke. Each
// stands for one.
func (f *Fleet) successors() map[int]int {
	instead, taken := map[int]int{}, map[int]bool{}
	for i, lost := range f.Processes {
		for next, p := range f.Processes {
			if _, stands := instead[i]; lost.Lost && !stands && !taken[next] && !p.Lost && p.Role == lost.Role && p.Started.After(lost.At) {
				instead[i], taken[next] = next, true
			}
		}
	}
	return instead
}

// judgeFingerprints compares the processes that are not lost. Two sets that have both been in force for over a minute are a fault; until then
// a change of the files is on its way.
func (f *Fleet) judgeFingerprints() {
	members, settled := map[string][]string{}, map[string]bool{}
	for _, p := range f.Processes {
		if p.Lost {
			continue
		}
		print := p.Mappings.Fingerprint
		members[print] = append(members[print], p.name())
		if p.settled() {
			settled[print] = true
		}
	}
	if len(members) < 2 {
		return
	}
	var each []string
	for _, print := range slices.Sorted(maps.Keys(members)) {
		each = append(each, print+" ("+strings.Join(members[print], ", ")+")")
	}
	what := fmt.Sprintf("runs %d sets of mappings: %s", len(members), strings.Join(each, ", "))
	if len(settled) < 2 {
		f.Findings = append(f.Findings, Finding{string(mapping.SeverityNote), "fleet " + f.Group, what + "; a change of the files is on its way"})
		return
	}
	f.fail("fleet "+f.Group, what+", for more than a minute: the same row gives different keys (compare the folders that they read)")
}
