package gap

import (
	"context"
	"fmt"
	"time"
)

// OnGap is who accepts where nobody has to.
const OnGap = "on_gap: flush"

// Accept writes a decision. A gap that has one already keeps it, and c has the one that stands.
//
// Two may decide in the same moment, neither seeing the other's. The first of their records in the log counts, for who waits for it
// (Await) and for both of them: who finds that he was second writes the first one's again, so that it is also what is left when the
// topic is compacted, an hour later at the earliest.
func (b *Book) Accept(ctx context.Context, c *Case, by string, flush bool) error {
	if c.Acceptance != nil {
		return nil
	}
	mine := Acceptance{V: version, ID: c.ID, By: by, At: time.Now().UTC(), Flush: flush}
	if err := b.put(ctx, acceptedPrefix, c.ID, mine); err != nil {
		return err
	}
	first, err := b.decision(ctx, c.ID)
	if err != nil {
		return err
	}
	if first.By != mine.By || !first.At.Equal(mine.At) {
		c.Acceptance = &first
		return b.put(ctx, acceptedPrefix, c.ID, first)
	}
	c.Acceptance = &mine
	return b.event(ctx, "gap.accepted", c.ID, map[string]string{"by": by, "flush": fmt.Sprint(flush)})
}

// decision is the first one about a gap.
func (b *Book) decision(ctx context.Context, id string) (Acceptance, error) {
	value, found, err := b.state.First(ctx, key(acceptedPrefix, id))
	if err == nil && !found {
		err = fmt.Errorf("it was removed meanwhile")
	}
	if err != nil {
		return Acceptance{}, fmt.Errorf("reading the decision about gap %s: %w", id, err)
	}
	return decodeDecision(id, value)
}

func decodeDecision(id string, value []byte) (Acceptance, error) {
	a, err := decode[Acceptance]("an acceptance", value)
	if err != nil {
		return a, fmt.Errorf("gap %s: %w", id, err)
	}
	return a, nil
}

// Await returns the decision about a gap, as soon as there is one and it is asked for: each every. ok is false where ctx or
// the patience ended first.
func (b *Book) Await(ctx context.Context, id string, every, patience time.Duration) (a Acceptance, ok bool, err error) {
	ask, err := b.state.FollowFirst(key(acceptedPrefix, id))
	if err != nil {
		return a, false, err
	}
	defer ask.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for {
		value, found, err := ask.Get(ctx)
		if err != nil {
			return a, false, err
		}
		if found {
			a, err = decodeDecision(id, value)
			return a, err == nil, err
		}
		select {
		case <-ctx.Done():
			return a, false, nil
		case <-enough.C:
			return a, false, nil
		case <-tick.C:
		}
	}
}
