package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/owed"
	"invalidator/internal/pipeline"
	"invalidator/replay"
	"invalidator/sink/memcache"
)

// Owing is what somebody owes in all partitions. Its JSON form is stable.
type Owing struct {
	Owes       string    `json:"owes"` // node, template, pool or storm
	Name       string    `json:"name"`
	Partitions int       `json:"partitions"`
	Records    int64     `json:"records"` // of the log; of an open debt up to the partition's end
	Since      time.Time `json:"since"`
	Open       bool      `json:"open"`           // what comes is owed too: the node is off, the pool paused, the template stopped
	Rate       float64   `json:"rate"`           // of a node: records a second that are being paid; 0: not known
	Left       int64     `json:"left,omitempty"` // seconds until it is paid at this rate; 0: not known
}

// PartitionLag is how far the group is with a partition. Its JSON form is stable.
type PartitionLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"` // -1: not known
	Lag       int64  `json:"lag"` // records; 0 where the end is not known
}

const (
	// newestSaid is how far back the status topic is read for rates.
	newestSaid = 2000
	// rateGood is how old a rate may be.
	rateGood = 15 * time.Second
)

// readOwing adds what is owed, and how far the group is with each partition.
func (f *Fleet) readOwing(ctx context.Context, o changelog.Options, names changelog.Names, maxTTL time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	store, err := changelog.OpenState(o, names.State)
	if err != nil {
		return err
	}
	defer store.Close()
	state, err := store.LoadOnly(ctx, owed.Wanted(f.Group))
	if err != nil {
		return err
	}
	sum := owed.NewSum(f.Group)
	for key, e := range state.Under("partition", f.Group) {
		sum.Apply(key, e.Value)
	}
	lags, err := changelog.ReadLags(ctx, o, f.Group)
	if err != nil {
		return err
	}
	ends := map[changelog.Partition]int64{}
	for _, l := range lags {
		ends[l.Partition] = l.End
		f.Lags = append(f.Lags, PartitionLag{l.Topic, l.Number, l.Committed, l.End, max(l.End-l.Committed, 0)})
	}
	debts, bad := sum.All()
	if bad != nil {
		f.fail("fleet "+f.Group, "what is owed is not known: "+bad.Error())
	}
	rates, err := readRates(ctx, o, names.Status, f.Group)
	if err != nil {
		return err
	}
	f.owing(debts, ends, rates)
	f.judgeOwing(time.Now(), maxTTL)
	return nil
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
	slices.SortFunc(f.Owing, func(a, b Owing) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Owes), slices.Index(order, b.Owes)), cmp.Compare(a.Name, b.Name))
	})
}

// readRates are the last records about nodes on the status topic, those that are not old.
func readRates(ctx context.Context, o changelog.Options, topic, group string) (map[string]replay.Owed, error) {
	rates := map[string]replay.Owed{}
	_, _, err := changelog.ReadNewest(ctx, o, func(t string) bool { return t == topic }, newestSaid, func(_ string, r changelog.TopicRecord) error {
		if s, err := replay.DecodeStatus(r.Value); err == nil { // others are for others
			if s, ok := s.(replay.Owed); ok && s.Group == group {
				rates[s.Node] = s
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, fmt.Errorf("reading how fast debts are paid: %w", err)
	}
	maps.DeleteFunc(rates, func(_ string, s replay.Owed) bool { return time.Since(s.At) > rateGood })
	return rates, nil
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
