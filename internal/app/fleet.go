package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
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

// Fleet is what the state topic says of the processes of a consumer group: the workers, then the feeders, each by name.
type Fleet struct {
	Group     string
	Processes []Process
	Owing     []Owing           // what is owed: nodes first, then by kind and name
	Lags      []PartitionLag    // of the partitions that the group has a commit of
	Paused    []changelog.Pause // pools, by name
	Findings  []Finding         // an error is what needs a person
}

// ReadFleet asks the state topic, and no member. It reads it once; where a process looks lost, again after two of its beats,
// since then it is the clocks that differ if it has spoken meanwhile. Processes that have been silent for an hour are left out.
func ReadFleet(ctx context.Context, c *config.Config, log *slog.Logger) (Fleet, error) {
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return Fleet{}, err
	}
	names := changelog.NamesFor(c.Kafka.TopicPrefix)
	f, err := readFleet(ctx, o, names.State, c.Kafka.Group)
	if err != nil {
		return f, err
	}
	return f, f.readOwing(ctx, o, names, c.Cache.MaxTTL)
}

func readFleet(ctx context.Context, o changelog.Options, topic, group string) (Fleet, error) {
	store, err := openStateToRead(ctx, o, topic)
	if err != nil {
		return Fleet{}, err
	}
	defer store.Close()
	first, bad, err := readProcesses(ctx, store)
	if err != nil {
		return Fleet{}, err
	}
	paused, badPauses, err := readPaused(ctx, store, group)
	if err != nil {
		return Fleet{}, err
	}
	f := fleetOf(group, first, nil, time.Now())
	if slices.ContainsFunc(f.Processes, func(p Process) bool { return p.Lost }) {
		select {
		case <-ctx.Done():
			return Fleet{}, ctx.Err()
		case <-time.After(2 * processEvery):
		}
		var second map[string]spoken
		if second, bad, err = readProcesses(ctx, store); err != nil {
			return Fleet{}, err
		}
		f = fleetOf(group, second, first, time.Now())
	}
	f.Paused, f.Findings = paused, slices.Concat(badPauses, bad, f.Findings)
	return f, nil
}

// readPaused returns the pools of a group that are paused, and what is wrong with records that cannot be read.
func readPaused(ctx context.Context, store *changelog.StateStore, group string) (paused []changelog.Pause, bad []Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	all, err := loadPauses(ctx, store, group)
	var unread *changelog.RecordError
	switch {
	case errors.As(err, &unread):
		bad = failed("pause", err)
	case err != nil:
		return nil, nil, err
	}
	for _, pool := range slices.Sorted(maps.Keys(all)) {
		if all[pool].Paused {
			paused = append(paused, all[pool])
		}
	}
	return paused, bad, nil
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

// readProcesses returns the processes of every group by their id, and what is wrong with records that cannot be read.
func readProcesses(ctx context.Context, store *changelog.StateStore) (map[string]spoken, []Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	state, err := store.Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	var bad []Finding
	all := map[string]spoken{}
	for key, e := range state.Under("process") {
		r, err := parseProcess(e)
		if err != nil {
			bad = append(bad, failed("process", state.BadRecord(key, e, err))...)
			continue
		}
		all[strings.TrimPrefix(key, "process/")] = spoken{r, e.Location}
	}
	return all, bad, nil
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
			Mappings: ProcessMappings{m.Fingerprint, m.Since, append([]string{}, m.Failing...), append([]string{}, m.Recalled...)}, Ring: r.Ring, Off: r.Off, Paying: r.Paying,
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
	for _, p := range f.Processes {
		if p.Lost {
			f.fail(p.name(), fmt.Sprintf("lost: it last spoke at %s (it was killed, hangs, or cannot reach Kafka)", p.At.UTC().Format(time.DateTime)))
			continue
		}
		worker = worker || p.Role == roleWorker
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
