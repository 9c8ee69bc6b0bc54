package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/obs"
	"invalidator/sink/registry"
)

const (
	// processEvery is how often a process says how it is. One that is silent for processLost counts as lost.
	processEvery = 2 * time.Second
	// processForget is how long the record of a process that ended without a word stays.
	processForget = time.Hour
	// processRemove bounds the last word: a broker that is away must not keep a process from ending, and one that is slow must
	// not have this process taken for lost.
	processRemove = 5 * time.Second
)

// The roles that a process can have.
const (
	roleWorker = "worker"
	roleFeeder = "feeder"
)

// processRecord is the value under process/<id>: docs/TOPICS.md.
type processRecord struct {
	V        int             `json:"v"`
	Role     string          `json:"role"` // roleWorker or roleFeeder
	Host     string          `json:"host"`
	Group    string          `json:"group"`
	Version  string          `json:"version"`
	Started  time.Time       `json:"started"`
	At       time.Time       `json:"at"`
	Mappings mappingsRecord  `json:"mappings"`
	Ring     *registryRecord `json:"ring,omitempty"`   // a worker's
	Off      []NodeOff       `json:"off,omitempty"`    // a worker's: the nodes that are off its live path
	Paying   []PassNow       `json:"paying,omitempty"` // a worker's: the passes that run, at most maxPasses
	Wrong    []string        `json:"wrong,omitempty"`  // a feeder's: what a person must act on, but for gaps
}

// maxPasses bounds the passes of one process's record.
const maxPasses = 100

// NodeOff is a node that is off a worker's live path. Its JSON form is stable.
type NodeOff struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// PassNow is a pass over the log that a worker runs. Its JSON form is stable.
type PassNow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Pays      string `json:"pays"`  // debts or storms
	Whose     string `json:"whose"` // "node 10.0.1.5:11211", and how many more
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

type mappingsRecord struct {
	Fingerprint string    `json:"fingerprint"`
	Since       time.Time `json:"since"`              // when it came into force here
	Failing     []string  `json:"failing,omitempty"`  // files whose text in the folder is not in force
	Recalled    []string  `json:"recalled,omitempty"` // of those in force, which are as the state topic had them
}

type registryRecord struct {
	Epoch       int64 `json:"epoch"`
	HotRevision int64 `json:"hot_revision"`
}

// process writes what this process is to the state topic, so that a fleet can be seen without asking its members.
type process struct {
	state    *changelog.StateStore
	role     string
	group    string
	mappings *mappings
	view     func() *registry.View // nil: this process has no ring
	off      func() []NodeOff      // nil: it has no nodes
	paying   func() []PassNow      // nil: it pays nothing
	wrong    func() []string       // nil: it leads no source
	log      *slog.Logger

	name    string // of this process, to people: processName's
	key     string
	host    string
	started time.Time
}

// processName names this process among all of a fleet. A host's name and a process's number are not enough: in containers
// many are number 1 of one host.
func processName() string {
	host, _ := os.Hostname()
	return host + "-" + rand.Text()[:8]
}

// start writes until the returned function is called, which takes the record away and waits for it.
func (p *process) start(ctx context.Context) (stop func()) {
	p.host, _ = os.Hostname()
	p.key = changelog.StateKey("process", p.name)
	p.started = time.Now().UTC()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a process that drains is not lost
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	return func() { cancel(); <-done }
}

func (p *process) run(ctx context.Context) {
	failing := false
	tick := time.NewTicker(processEvery)
	defer tick.Stop()
	for first := true; ctx.Err() == nil; first = false {
		err := p.write(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			p.log.Warn("saying how this process is: others take it for lost until this works", "error", err)
		}
		failing = err != nil
		if first && err == nil {
			if err := p.forget(ctx); err != nil && ctx.Err() == nil {
				p.log.Warn("removing the records of processes that are long gone", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), processRemove)
	defer cancel()
	if err := p.state.Remove(ctx, p.key); err != nil {
		p.log.Debug("the record of this process stays: it will be shown as lost", "error", err)
	}
}

func (p *process) write(ctx context.Context) error {
	m := p.mappings.today()
	r := processRecord{
		V: 1, Role: p.role, Host: p.host, Group: p.group, Version: obs.Version(), Started: p.started, At: time.Now().UTC(),
		Mappings: mappingsRecord{m.set.Fingerprint(), m.since.UTC(), m.failing, m.recalled},
	}
	if p.view != nil {
		v := p.view()
		r.Ring = &registryRecord{v.Topology.Epoch(), v.Hot.Revision()}
	}
	if p.off != nil {
		r.Off = p.off()
	}
	if p.paying != nil {
		r.Paying = p.paying()
	}
	if p.wrong != nil {
		r.Wrong = p.wrong()
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the record of this process: %w", err)
	}
	return p.state.Put(ctx, p.key, value)
}

// forget removes the records of processes that have been silent for long: nobody else will.
func (p *process) forget(ctx context.Context) error {
	state, err := p.state.Load(ctx)
	if err != nil {
		return err
	}
	var old []string
	for key, e := range state.Under("process") {
		var r struct{ At time.Time }
		if err := json.Unmarshal(e.Value, &r); err == nil && !r.At.IsZero() && time.Since(r.At) > processForget {
			old = append(old, key)
		}
	}
	if len(old) == 0 {
		return nil
	}
	return p.state.Remove(ctx, old...)
}
