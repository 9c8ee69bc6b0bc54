package control

import (
	"slices"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// Asked is a request, and where it lies.
type Asked struct {
	replay.Request
	Offset int64
	Taken  time.Time // when the broker took it
}

// Planned is a plan, and where it lies.
type Planned struct {
	replay.Plan
	Offset int64
	Taken  time.Time
}

// Begun is a job, and where it lies.
type Begun struct {
	replay.Job
	Offset int64
	Taken  time.Time
}

// unread is a plan that this version cannot read: nothing behind it is acted on.
type unread struct {
	id     string
	offset int64
	err    error
}

// State is what the control topic says. It is safe for concurrent use.
type State struct {
	soon chan struct{} // holds one signal: the topic is to be looked at

	mu struct { // a leaf
		sync.Mutex
		content
		topic   string                        // id of the topic; "" where the broker knows none
		next    int64                         // offset behind what was read
		asOf    time.Time                     // when the last look that worked began; zero: none did
		today   map[string]string             // ids of topics that plans name; of one that does not exist, none
		ahead   map[changelog.Partition]ahead // marks that were behind next
		changed chan struct{}                 // closed and replaced when any of this is another
	}
}

// content is what of the topic counts, in the order of offsets.
type content struct {
	requests []*Asked // the first of each id; cancels, pauses and resumes are not among them
	plans    []*Planned
	jobs     []*Begun
	unread   []unread
	byID     map[string]*Asked
	planned  map[string]*Planned
	began    map[string]*Begun
	words    map[string][]*Asked // cancels, pauses and resumes, by whose id they are about
	ids      map[string]bool     // of all requests
}

func newContent() content {
	return content{byID: map[string]*Asked{}, planned: map[string]*Planned{}, began: map[string]*Begun{}, words: map[string][]*Asked{}, ids: map[string]bool{}}
}

// NewState is empty until a Follower has read the topic.
func NewState() *State {
	s := &State{soon: make(chan struct{}, 1)}
	s.mu.content, s.mu.changed = newContent(), make(chan struct{})
	s.mu.ahead = map[changelog.Partition]ahead{}
	return s
}

// add takes a record in.
func (c *content) add(r replay.Record, offset int64, taken time.Time) {
	switch r := r.(type) {
	case replay.Request:
		if c.ids[r.ID] {
			return
		}
		c.ids[r.ID] = true
		a := &Asked{r, offset, taken}
		if r.Action == replay.Replay || r.Action == replay.Flush {
			c.requests, c.byID[r.ID] = append(c.requests, a), a
		} else if r.Of != "" {
			c.words[r.Of] = append(c.words[r.Of], a)
		}
	case replay.Plan:
		if c.planned[r.ID] == nil {
			p := &Planned{r, offset, taken}
			c.plans, c.planned[r.ID] = append(c.plans, p), p
		}
	case replay.Job:
		if c.began[r.ID] == nil {
			j := &Begun{r, offset, taken}
			c.jobs, c.began[r.ID] = append(c.jobs, j), j
		}
	}
}

// cancelOf is what cancels an id: the first cancel; of a request with a cause the first that is forced. nil: nothing does.
func (c *content) cancelOf(id string) *Asked {
	r := c.byID[id]
	for _, w := range c.words[id] {
		if w.Action == replay.Cancel && (r == nil || r.Cause == nil || w.Force) {
			return w
		}
	}
	return nil
}

// counts reports whether a plan does: no other one of its id, and no cancel, lies before it.
func (c *content) counts(p *Planned) bool {
	cancel := c.cancelOf(p.ID)
	return c.planned[p.ID] == p && (cancel == nil || cancel.Offset > p.Offset)
}

// forget lets go of what the topic no longer holds.
func (c *content) forget(start int64) {
	old := func(id string, offset int64) bool {
		if offset >= start {
			return false
		}
		delete(c.ids, id)
		return true
	}
	c.requests = slices.DeleteFunc(c.requests, func(a *Asked) bool {
		gone := old(a.ID, a.Offset)
		if gone {
			delete(c.byID, a.ID)
		}
		return gone
	})
	c.plans = slices.DeleteFunc(c.plans, func(p *Planned) bool {
		gone := p.Offset < start
		if gone {
			delete(c.planned, p.ID)
		}
		return gone
	})
	c.jobs = slices.DeleteFunc(c.jobs, func(j *Begun) bool {
		gone := j.Offset < start
		if gone {
			delete(c.began, j.ID)
		}
		return gone
	})
	c.unread = slices.DeleteFunc(c.unread, func(u unread) bool { return u.offset < start })
	for of, words := range c.words {
		words = slices.DeleteFunc(words, func(a *Asked) bool { return old(a.ID, a.Offset) })
		if c.words[of] = words; len(words) == 0 {
			delete(c.words, of)
		}
	}
}

// Changed is closed when the state is another. Take it before what is asked, so that nothing is missed between the two.
func (s *State) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.changed
}

// LookSoon has the follower look at the topic at once, and not at its time: this process has written to it, or has to know what is there now.
func (s *State) LookSoon() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}

// AsOf is when the last look at the topic began that worked: all that was on it then is here. Zero: none has.
func (s *State) AsOf() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.asOf
}

// Requests are the replays and flushes that were asked for, in the order of the topic.
func (s *State) Requests() []Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Asked, len(s.mu.requests))
	for i, a := range s.mu.requests {
		all[i] = *a
	}
	return all
}

// Jobs are those that have begun, in the order of the topic.
func (s *State) Jobs() []Begun {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Begun, len(s.mu.jobs))
	for i, j := range s.mu.jobs {
		all[i] = *j
	}
	return all
}

// Cancelled implements pipeline.Orders.
func (s *State) Cancelled(id string) bool {
	_, is := s.CancelOf(id)
	return is
}

// CancelOf is what cancels a replay or a flush. A request with a cause is cancelled by force alone.
func (s *State) CancelOf(id string) (by Asked, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.cancelOf(id); c != nil {
		return *c, true
	}
	return Asked{}, false
}

// Paused is what pauses a flush: the last of its pauses and resumes is one.
func (s *State) Paused(id string) (by Asked, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range slices.Backward(s.mu.words[id]) {
		if w.Action == replay.Pause || w.Action == replay.Resume {
			return *w, w.Action == replay.Pause
		}
	}
	return Asked{}, false
}

// unplanned are the replays that need a plan.
func (s *State) unplanned() (all []Asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.mu.requests {
		isUnread := slices.ContainsFunc(s.mu.unread, func(u unread) bool { return u.id == a.ID })
		if a.Action == replay.Replay && s.mu.planned[a.ID] == nil && !isUnread && s.mu.cancelOf(a.ID) == nil {
			all = append(all, *a)
		}
	}
	return all
}

// replays are those that have a plan that counts, or were cancelled before, since a time, by id.
func (s *State) replays(since time.Time) map[string]*ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]*ending{}
	for _, p := range s.mu.plans {
		if s.mu.counts(p) && p.Taken.After(since) {
			all[p.ID] = &ending{at: p.Taken, plan: p, cancel: s.mu.cancelOf(p.ID), done: map[changelog.Partition]bool{}}
		}
	}
	for _, a := range s.mu.requests {
		if c := s.mu.cancelOf(a.ID); a.Action == replay.Replay && c != nil && c.Taken.After(since) && all[a.ID] == nil {
			all[a.ID] = &ending{at: c.Taken, cancel: c}
		}
	}
	return all
}

// Topic is the id of the control topic; "" where the broker knows none, or before it was read.
func (s *State) Topic() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.topic
}
