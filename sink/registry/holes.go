package registry

import (
	"sync"
	"time"

	"invalidator/sink"
)

// Hole is where a ring record may have been in force that nobody saw: clients may have placed copies under it on nodes that no known record gave
// them, and of what was deleted meanwhile nothing went there.
type Hole struct {
	After, Before int64     // the epochs known on its two sides; After 0: nothing is known before Before
	Until         time.Time // when the last of such copies expires
}

// holes are those among the sights.
func (p *past) holes(o Options) (list []Hole) {
	for i, s := range p.sights {
		if p.unseenBefore(i) {
			h := Hole{Before: s.Record.Epoch, Until: s.written().Add(o.stays())}
			if i > 0 {
				h.After = p.sights[i-1].Record.Epoch
			}
			list = append(list, h)
		}
	}
	return list
}

// unseenBefore says that before the sight at i there may have been a record that nobody saw.
func (p *past) unseenBefore(i int) bool {
	epoch := p.sights[i].Record.Epoch
	return epoch > 1 && (i == 0 || epoch > p.sights[i-1].Record.Epoch+1)
}

// written is a moment at which the manager had written the record, on the worker's clock: what it replaced was in force no longer.
func (s Sight) written() time.Time {
	if at := s.Record.At; !at.IsZero() && at.Add(clocksDiffer).Before(s.Seen) {
		return at.Add(clocksDiffer)
	}
	return s.Seen
}

// came is a moment at which the record had not been written for long.
func (s Sight) came() time.Time {
	if at := s.Record.At; !at.IsZero() && at.Add(-clocksDiffer).Before(s.Seen) {
		return at.Add(-clocksDiffer)
	}
	return s.Seen
}

// Holes are those whose copies may live at now.
func (v *View) Holes(now time.Time) (list []Hole) {
	for _, h := range v.Unseen {
		if now.Before(h.Until) {
			list = append(list, h)
		}
	}
	return list
}

// Gained are the copies that nodes may have under the record of that epoch and had under no record known of before, where a hole lay below it while it
// came: under a record that nobody saw such a node may have been an owner, and gone off with what it held. They are flushed. A flush takes a wire
// text of a node where one of the node's ranges has its Place under that record; under kind points160 that is sink.Hash.
func (v *View) Gained(epoch int64) []sink.Gain {
	records, _ := v.Between(0, epoch)
	if len(records) == 0 || records[len(records)-1].Epoch != epoch {
		return nil
	}
	came := v.Sights[len(records)-1].came()
	for _, h := range v.Holes(came) {
		if h.Before <= epoch {
			return v.gained.of(records)
		}
	}
	return nil
}

// gained keeps what was found, since each partition asks the same. A nil one keeps nothing.
type gained struct {
	mu sync.Mutex // held while it is found
	by map[int64][]sink.Gain
}

// of is what the last record gains over the others.
func (g *gained) of(records []*sink.Record) []sink.Gain {
	last := len(records) - 1
	if g == nil {
		return sink.Gains(records[last], records[:last])
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	epoch := records[last].Epoch
	gains, known := g.by[epoch]
	if !known {
		gains = sink.Gains(records[last], records[:last])
		g.by[epoch] = gains
	}
	return gains
}
