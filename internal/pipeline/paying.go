package pipeline

import (
	"cmp"
	"slices"
	"sync"

	"invalidator/internal/changelog"
)

// Paying is a pass over the log that runs now.
type Paying struct {
	changelog.Partition
	Pays     string // debts, storms, epochs or replays
	Whose    string // "node 10.0.1.5:11211", and how many more
	From, To int64  // what it reads
}

// running are the passes of a worker that run.
type running struct {
	sync.Mutex // a leaf
	passes     map[*pass]Paying
}

func (r *running) begin(ps *pass) {
	r.Lock()
	defer r.Unlock()
	if r.passes == nil {
		r.passes = map[*pass]Paying{}
	}
	r.passes[ps] = Paying{ps.p.id, ps.id.kind.String(), ps.names(), ps.from, ps.to}
}

func (r *running) end(ps *pass) {
	r.Lock()
	defer r.Unlock()
	delete(r.passes, ps)
}

// Paying lists the passes that run, by partition.
func (w *Worker) Paying() []Paying {
	w.running.Lock()
	defer w.running.Unlock()
	all := make([]Paying, 0, len(w.running.passes))
	for _, p := range w.running.passes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Paying) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Pays, b.Pays), cmp.Compare(a.Whose, b.Whose))
	})
	return all
}
