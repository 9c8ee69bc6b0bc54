package feed

import (
	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// remember gives a feeder the layouts that were kept with the position that it gets, and where to keep what follows. Those of other
// generations go with their positions.
func (r *run) remember(state *changelog.State, from changelog.SavedPosition) error {
	h, ok := r.Feeder.(cdc.Historian)
	if !ok {
		return nil
	}
	kept, err := r.opts.State.Schemas(state, r.Name, from, r.generation)
	if err != nil {
		return err
	}
	h.Remember(kept.Known, kept)
	r.stale = append(r.stale, kept.Stale...)
	return nil
}
