package flush

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"invalidator/replay"
)

// clocksDiffer is by how much the clocks of a broker and a worker may differ.
const clocksDiffer = 15 * time.Second

// class is what goes first.
type class int

const (
	promotions class = iota // a shard's readers may see values that the old primary had deleted
	gained                  // a node may hold what it held when nobody saw
	others
)

// request is one that is not answered.
type request struct {
	Asked
	seen time.Time // when it was first read here
	job  *job      // that answers it; nil: none has begun
}

func (r *request) class() class {
	switch {
	case r.Cause != nil && r.Cause.What == replay.Promotion:
		return promotions
	case r.Target.Gained > 0:
		return gained
	}
	return others
}

// epoch is that of the ring record that it is about; 0: of none.
func (r *request) epoch() int64 {
	if r.Cause == nil {
		return r.Target.Gained
	}
	return r.Cause.Epoch
}

// job is one that has begun and has requests that are not answered.
type job struct {
	Begun
	class   class
	first   int64      // offset of the first of its requests
	answers []*request // in order
	paused  bool       // any of them is
	done    map[stage]int
	keys    int64 // as told before this term
	copies  int64
	kept    int64
	run     *run // what this term does with it; nil: nothing yet
}

// stage is a node in a round of a job.
type stage struct {
	round int
	node  string
}

// book is what is to be done, after the topics.
type book struct {
	keep     time.Duration // what was asked for longer ago has nothing left to flush: it has expired
	requests map[string]*request
	jobs     map[string]*job
	void     map[string]bool      // jobs that answer nothing
	ended    map[string]time.Time // requests that have their result; by when the broker took them
	due      map[string]outcome   // requests that have ended, and have no result yet
}

// outcome is what a request comes to that no job answers.
type outcome struct {
	why   error // nil: there was nothing to do
	taken time.Time
}

func newBook(keep time.Duration) *book {
	return &book{keep: keep, requests: map[string]*request{}, jobs: map[string]*job{}, void: map[string]bool{}, ended: map[string]time.Time{}, due: map[string]outcome{}}
}

// update takes in what the control topic says at now.
func (b *book) update(requests []Asked, jobs []Begun, now time.Time) {
	there := make(map[string]bool, len(requests))
	maps.DeleteFunc(b.ended, func(_ string, taken time.Time) bool { return b.expired(taken, now) })
	for _, a := range requests {
		_, over := b.ended[a.ID]
		_, due := b.due[a.ID]
		r := b.requests[a.ID]
		if over || due || a.Action != replay.Flush || r == nil && b.expired(a.Taken, now) {
			continue
		}
		there[a.ID] = true
		if r == nil {
			r = &request{seen: now}
			b.requests[a.ID] = r
		}
		r.Asked = a
	}
	for id, r := range b.requests {
		if !there[id] { // the topic was made again
			b.remove(r)
		}
	}
	known := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		known[j.ID] = true
		b.begin(j)
	}
	maps.DeleteFunc(b.void, func(id string, _ bool) bool { return !known[id] })
	for _, r := range b.requests {
		if r.Cancelled != "" {
			b.refuse(r, errors.New("cancelled by "+r.Cancelled))
		}
	}
	for _, j := range b.jobs {
		j.paused = slices.ContainsFunc(j.answers, func(r *request) bool { return r.Paused })
	}
}

// expired also covers clocks that differ.
func (b *book) expired(taken, now time.Time) bool { return now.Sub(taken) > b.keep+clocksDiffer }

// begin takes in a job. It answers those of its requests that lie before it and that no earlier one answers.
func (b *book) begin(begun Begun) {
	if b.jobs[begun.ID] != nil || b.void[begun.ID] {
		return
	}
	j := &job{Begun: begun, done: map[stage]int{}}
	for _, id := range begun.Answers {
		if r := b.requests[id]; r != nil && r.job == nil && r.Offset < begun.Offset {
			r.job = j
			j.answers = append(j.answers, r)
		}
	}
	if len(j.answers) == 0 {
		b.void[begun.ID] = true
		return
	}
	slices.SortFunc(j.answers, func(x, y *request) int { return cmp.Compare(x.Offset, y.Offset) })
	j.class, j.first = j.answers[0].class(), j.answers[0].Offset
	b.jobs[begun.ID] = j
}

// lapse ends the requests that expired before they began, and those of which all that they mean has expired.
func (b *book) lapse(now time.Time) {
	for _, r := range b.requests {
		if b.expired(r.Taken, now) {
			b.refuse(r, nil)
		} else if r.job == nil && !r.Expires.IsZero() && r.Expires.Before(now) {
			b.refuse(r, fmt.Errorf("it had not begun when it expired, at %s", r.Expires.UTC().Format(time.RFC3339)))
		}
	}
}

// knows says whether the control topic has a job of that id.
func (b *book) knows(id string) bool { return b.jobs[id] != nil || b.void[id] }

// refuse ends a request without a job. A nil why: there is nothing to do for it.
func (b *book) refuse(r *request, why error) {
	b.due[r.ID] = outcome{why, r.Taken}
	b.remove(r)
}

// remove lets go of a request, and of its job with the last of them.
func (b *book) remove(r *request) {
	delete(b.requests, r.ID)
	j := r.job
	if j == nil {
		return
	}
	j.answers = slices.DeleteFunc(j.answers, func(other *request) bool { return other == r })
	if len(j.answers) == 0 {
		delete(b.jobs, j.ID)
		b.void[j.ID] = true
	}
}

// told takes in what the status topic says: what is done need not be done again.
func (b *book) told(record replay.Record) {
	switch r := record.(type) {
	case replay.Progress:
		if j := b.jobs[r.ID]; j != nil && r.Done && r.Part != nil && r.Part.Of == j.Parts {
			at := stage{r.Round, r.Node}
			j.done[at] = max(j.done[at], r.Part.N+1) // parts are done in order
			j.keys, j.copies, j.kept = j.keys+r.Keys, j.copies+r.Copies, j.kept+r.Kept
		}
	case replay.Result:
		b.end(r.ID)
	}
}

// end notes that a request has its result.
func (b *book) end(id string) {
	if d, ok := b.due[id]; ok {
		b.ended[id] = d.taken
		delete(b.due, id)
	}
	if r := b.requests[id]; r != nil {
		b.ended[id] = r.Taken
		b.remove(r)
	}
}

// oldest is when the first of what is not answered was asked for; zero: all is.
func (b *book) oldest() (t time.Time) {
	for _, r := range b.requests {
		if t.IsZero() || r.Taken.Before(t) {
			t = r.Taken
		}
	}
	return t
}

// unit is what can be done next: a job, or requests that one job can answer.
type unit struct {
	job   *job
	group []*request
	class class
	first int64
	limit string // of the load, that the group names
}

// units are all there are, what goes first first. Paused ones are left out.
func (b *book) units() (all []unit) {
	for _, j := range b.jobs {
		if !j.paused {
			all = append(all, unit{job: j, class: j.class, first: j.first})
		}
	}
	var open []*request
	for _, r := range b.requests {
		if r.job == nil && !r.Paused {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(x, y *request) int { return cmp.Compare(x.Offset, y.Offset) })
	for len(open) > 0 {
		u := unit{class: open[0].class(), first: open[0].Offset}
		var rest []*request
		for _, r := range open {
			if u.takes(r) {
				u.group, u.limit = append(u.group, r), cmp.Or(u.limit, r.MaxLoad)
			} else {
				rest = append(rest, r)
			}
		}
		open = rest
		all = append(all, u)
	}
	slices.SortFunc(all, func(x, y unit) int { return cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.first, y.first)) })
	return all
}

// takes says whether one job can answer a request together with those of the group: promotions with promotions, gains with gains, and else what is about the same keys. Two
// limits of the load make two jobs, and so does a dry run.
func (u *unit) takes(r *request) bool {
	if len(u.group) == 0 {
		return true
	}
	first := u.group[0]
	if r.class() != u.class || r.DryRun != first.DryRun {
		return false
	}
	if u.class != others {
		return r.Options == first.Options
	}
	return r.Target == first.Target && (r.MaxLoad == "" || u.limit == "" || r.MaxLoad == u.limit)
}

// options are those of a job for the group: of each the most careful, and to delete where any asks for that.
func (u *unit) options() replay.Options {
	o := replay.Options{Stale: true, MaxLoad: u.limit}
	for _, r := range u.group {
		if r.Pace > 0 && (o.Pace == 0 || r.Pace < o.Pace) {
			o.Pace = r.Pace
		}
		o.Slices, o.Refill = max(o.Slices, r.Slices), max(o.Refill, r.Refill)
		o.Stale = o.Stale && r.Stale
		if r.StaleFor > 0 && (o.StaleFor == 0 || r.StaleFor < o.StaleFor) {
			o.StaleFor = r.StaleFor
		}
	}
	if !o.Stale {
		o.StaleFor = 0
	}
	return o
}

// ids are those of requests.
func ids(group []*request) []string {
	list := make([]string, len(group))
	for i, r := range group {
		list[i] = r.ID
	}
	return list
}
