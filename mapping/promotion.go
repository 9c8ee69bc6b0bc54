package mapping

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// OnPromotion says what becomes of an underivable pool's keys on the nodes of a shard that has another primary.
type OnPromotion string

const (
	PromotionDelete OnPromotion = "delete" // the default
	PromotionStale  OnPromotion = "stale"  // one reader refills while the others go on seeing the old value
)

// Underived is a pool whose keys no row gives.
type Underived struct {
	Pool  string
	Stale time.Duration // after a promotion its copies are marked stale for so long in place of being deleted; 0: they are deleted
}

// Underived are the pools whose keys no row gives, of all files in force, by name.
func (s *Set) Underived() (all []Underived) {
	for _, f := range s.files {
		for _, pool := range f.Underivable {
			u := Underived{Pool: pool}
			if f.onPromotion(pool) == PromotionStale {
				u.Stale = defaultStaleFor
			}
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b Underived) int { return strings.Compare(a.Pool, b.Pool) })
	return all
}

// onPromotion is what the file says of one of its underivable pools.
func (f *File) onPromotion(pool string) OnPromotion {
	return cmp.Or(f.promotions[pool], PromotionDelete)
}

// onPromotion is what the file says whose underivable pool it is; empty: none has it.
func (s *Set) onPromotion(pool string) OnPromotion {
	for _, f := range s.files {
		if slices.Contains(f.Underivable, pool) {
			return f.onPromotion(pool)
		}
	}
	return ""
}

// readPromotions reads what a file says of its underivable pools.
func (r *fileReader) readPromotions(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "write on_promotion: {feed: stale}", "on_promotion must be pools with delete or stale, not %s", describe(n))
		return
	}
	r.f.promotions = map[string]OnPromotion{}
	r.pairs(n, func(key, value *yaml.Node) {
		switch {
		case slices.Contains(r.f.Pools, key.Value):
			r.errorf(key, "after a promotion the log repairs it", "on_promotion is for underivable pools, and rows give the keys of %q", key.Value)
			return
		case !slices.Contains(r.f.Underivable, key.Value):
			r.errorf(key, didYouMean(key.Value, r.f.Underivable), "on_promotion: pool %q is not one of this file's underivable ones", key.Value)
			return
		}
		what, ok := r.text(value, "on_promotion")
		switch on := OnPromotion(what); {
		case !ok:
		case on != PromotionDelete && on != PromotionStale:
			r.errorf(value, didYouMean(what, []string{string(PromotionDelete), string(PromotionStale)}), "on_promotion must be delete or stale, not %q", what)
		case on == PromotionStale && r.f.Readers != ReadersMeta:
			r.warnf(value, "write readers: meta if every reader of these pools asks by mg and heeds its flags", "the file's readers are classic: its keys are deleted, not marked stale")
		default:
			r.f.promotions[key.Value] = on
		}
	})
}
