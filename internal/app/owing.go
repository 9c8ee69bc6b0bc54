package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/owed"
	"invalidator/internal/pipeline"
	"invalidator/replay"
	"invalidator/sink/memcache"
)

// Owing is what somebody owes in all partitions. Its JSON form is stable.
type Owing struct {
	Owes       string    `json:"owes"` // node, template, pool or storm; epoch and replay: what is issued again, Fleet.Works says more of it
	Name       string    `json:"name"`
	Partitions int       `json:"partitions"`
	Records    int64     `json:"records"` // of the log; of an open debt up to the partition's end
	Since      time.Time `json:"since"`
	Open       bool      `json:"open"`           // what comes is owed too: the node is off, the pool paused, the template stopped
	Rate       float64   `json:"rate"`           // of a node: records a second that are being paid; 0: not known
	Left       int64     `json:"left,omitempty"` // seconds until it is paid at this rate; 0: not known
}

// rateGood is how old a rate may be.
const rateGood = 15 * time.Second

// readOwing adds what is owed, and how far the group is with each partition.
func (r *FleetReader) readOwing(ctx context.Context, f *Fleet, st *changelog.State) error {
	sum := owed.NewSum(f.Group)
	for key, e := range st.Under("partition", f.Group) {
		sum.Apply(key, e.Value)
	}
	var err error
	if f.Lags, err = r.lags(ctx); err != nil {
		return err
	}
	ends := map[changelog.Partition]int64{}
	for _, l := range f.Lags {
		ends[changelog.Partition{Topic: l.Topic, Number: l.Partition}] = l.End
	}
	debts, bad := sum.All()
	if bad != nil {
		f.fail("fleet "+f.Group, "what is owed is not known: "+bad.Error())
	}
	f.owing(debts, ends, r.rates())
	return nil
}

// rates are the last records about nodes on the status topic, those that are not old.
func (r *FleetReader) rates() map[string]replay.Owed {
	rates := map[string]replay.Owed{}
	if r.works == nil {
		return rates
	}
	for _, s := range r.works.works.rates {
		if s.Group == r.group && time.Since(s.At) <= rateGood {
			rates[s.Node] = s
		}
	}
	return rates
}

// owing sums up debts.
func (f *Fleet) owing(debts owed.Debts, ends map[changelog.Partition]int64, rates map[string]replay.Owed) {
	for who, of := range debts {
		t := owed.TotalOf(of, ends)
		w := Owing{Owes: who.Kind, Name: who.Name, Partitions: t.Partitions, Records: t.Records, Since: t.Since, Open: t.Open}
		if r, ok := rates[who.Name]; ok && who.Kind == pipeline.KindNode && !t.Open && r.Rate > 0 {
			w.Rate, w.Left = r.Rate, max(int64(float64(t.Records)/r.Rate), 1)
		}
		f.Owing = append(f.Owing, w)
	}
	order := []string{pipeline.KindNode, pipeline.KindTemplate, pipeline.KindPool, pipeline.KindStorm}
	place := func(kind string) int { // what is issued again comes last
		if i := slices.Index(order, kind); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(f.Owing, func(a, b Owing) int {
		return cmp.Or(cmp.Compare(place(a.Owes), place(b.Owes)), cmp.Compare(a.Owes, b.Owes), cmp.Compare(a.Name, b.Name))
	})
}

// judgeOwing adds what needs a person.
func (f *Fleet) judgeOwing(now time.Time, maxTTL time.Duration) {
	for _, w := range f.Owing {
		where := w.Owes + " " + w.Name
		switch {
		case maxTTL > 0 && now.Sub(w.Since) > maxTTL:
			f.fail(where, fmt.Sprintf("it has owed deletes for over %s (cache.max_ttl): the log soon lacks what it owes, which is then a gap with a flush", maxTTL))
		case w.Owes == pipeline.KindTemplate && w.Open:
			f.fail(where, "its template cannot render its table as that is now: nothing of it is deleted until another text of its file is in force (invalidator mappings check DIR)")
		case w.Owes == pipeline.KindNode && w.Open:
			f.Findings = append(f.Findings, Finding{string(cdc.SeverityWarning), where, "it is off: it does not answer in time. It is paid by itself when it is back"})
		}
	}
}

// nodesOff are the nodes that are off the live path of this process.
func nodesOff(client *memcache.Client) (off []NodeOff) {
	for _, n := range client.Nodes() {
		if !n.On {
			off = append(off, NodeOff{n.Node, n.Turned.UTC(), n.Why})
		}
	}
	return off
}

// passesOf are the passes that a worker runs, the first maxPasses.
func passesOf(w *pipeline.Worker) (now []PassNow) {
	for _, p := range w.Paying() {
		if len(now) == maxPasses {
			break
		}
		now = append(now, PassNow{p.Topic, p.Number, p.Pays, p.Whose, p.From, p.To})
	}
	return now
}
