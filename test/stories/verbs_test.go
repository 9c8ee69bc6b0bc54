package stories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"invalidator/replay"
)

// deed is what a sentence does.
type deed func(s *stage, words []string) error

// verbs are the sentences of a story.
var verbs = compile([]form[deed]{
	// How it begins.
	{text: "partitions NUM", do: func(*stage, []string) error { return nil }}, // of the log: foreseen
	{text: "row ROW REST", do: func(s *stage, a []string) error { return s.addRow(a[0], a[1]) }},
	{text: `feed (f\d*) REST`, do: func(s *stage, a []string) error { return s.addRow(a[0], a[1]) }}, // a key of an underivable pool
	{text: "TIME pass(?:es)?", do: func(s *stage, a []string) error {
		return timed(a[0], func(d time.Duration) error { s.pass(d); return nil })
	}},

	// The cluster manager: s0=a,b is a shard, the primary first, and b* is being seeded; "previous" and shards follow while a resize lasts.
	{text: "record NUM: REST", do: func(s *stage, a []string) error { return s.publish(number(a[0]), time.Now(), a[1]) }},
	{text: "record NUM, written TIME ago: REST", do: func(s *stage, a []string) error {
		return timed(a[1], func(d time.Duration) error { return s.publish(number(a[0]), time.Now().Add(-d), a[2]) })
	}},
	{text: "ROW has NUM hot cop(?:y|ies)", do: func(s *stage, a []string) error {
		r, _, err := s.row(a[0])
		if err == nil {
			s.makeHot(r, int(number(a[1])))
		}
		return err
	}},

	// Workers.
	{text: "WORKER starts", do: func(s *stage, a []string) error { return s.start(a[0], false) }},
	{text: "WORKER starts blind", do: func(s *stage, a []string) error { return s.start(a[0], true) }}, // it knows what stands on the state topic
	{text: "WORKER is killed", do: by((*worker).kill)},
	{text: "WORKER leaves", do: by(func(w *worker) error { w.leave(); w.end(); return nil })}, // it drains
	{text: "WORKER reads nothing", do: by(func(w *worker) error { w.reads(false); return nil })},
	{text: "WORKER reads again", do: by(func(w *worker) error { w.reads(true); return nil })},
	{text: "WORKER is cut off from Kafka", do: by(func(w *worker) error { w.kafka.cut(true); return nil })},
	{text: "WORKER reaches Kafka", do: by(func(w *worker) error { w.kafka.cut(false); return nil })},
	{text: "WORKER is blind", do: by(func(w *worker) error { w.blind = true; return nil })}, // it sees neither the registry nor what others saw
	{text: "WORKER sees again", do: by(func(w *worker) error { w.blind = false; return nil })},
	{text: "everybody is blind", do: func(s *stage, _ []string) error { s.blind(true); return nil }}, // the registry is away
	{text: "everybody sees again", do: func(s *stage, _ []string) error { s.blind(false); return nil }},
	{text: "WORKER is cut off from NODE", do: linked(func(l *link, n *node) { l.cut[n.name] = true })},
	{text: "WORKER reaches NODE", do: linked(func(l *link, n *node) { delete(l.cut, n.name) })},
	{text: "nobody reaches NODE", do: of(func(s *stage, n *node) { s.apart[n.name] = true })}, // no worker: its readers do
	{text: "everybody reaches NODE", do: of(func(s *stage, n *node) { delete(s.apart, n.name) })},
	{text: "WORKER has no room for NODE", do: linked((*link).full)}, // its queue is full: the node is off, and soon back
	{text: "NODE is full", do: of(func(s *stage, n *node) { // for every worker
		for _, w := range s.workers {
			w.link.full(n)
		}
	})},

	// Nodes.
	{text: "NODE freezes", do: of(func(_ *stage, n *node) { n.change(func() { n.frozen = true }) })},
	{text: "NODE thaws", do: of((*stage).thaw)},
	{text: "NODE stops", do: of(func(_ *stage, n *node) { n.change(func() { n.down = true }) })},
	{text: "NODE starts", do: of(func(_ *stage, n *node) { n.empty(); n.change(func() { n.down = false }) })}, // empty
	{text: "NODE dies", do: of((*stage).kill)},                                                                // with what it had not copied on
	{text: "NODE keeps its answers", do: of(func(_ *stage, n *node) { n.change(func() { n.mute = true }) })},
	{text: "NODE answers again", do: of(func(_ *stage, n *node) { n.change(func() { n.mute = false }) })},
	{text: "NODE refuses TEXT", do: refusal(true)},
	{text: "NODE takes TEXT", do: refusal(false)},
	{text: "nothing is copied to NODE", do: of(func(s *stage, n *node) { s.held[n.name] = true })},
	{text: "NODE is copied to again", do: of(func(s *stage, n *node) { delete(s.held, n.name) })},
	{text: "NUM cop(?:y|ies) arrives? at NODE", do: func(s *stage, a []string) error { // of what is held back: the oldest
		return of(func(s *stage, n *node) {
			for range number(a[0]) {
				if list := s.copying[n.name]; len(list) > 0 {
					s.copying[n.name] = list[1:]
					s.put(n, list[0].text, list[0].value, "copied from "+nameOf(list[0].from))
				}
			}
		})(s, a[1:])
	}},
	{text: "what was to be copied to NODE is lost", do: of(func(s *stage, n *node) { delete(s.copying, n.name) })},
	{text: "NODE has TEXT", do: func(s *stage, a []string) error { return s.holds(a[0], a[1], -1) }}, // as the row is now
	{text: "NODE has TEXT at version NUM", do: func(s *stage, a []string) error { return s.holds(a[0], a[1], int(number(a[2]))) }},
	{text: "every node has TEXT", do: func(s *stage, a []string) error {
		_, text, err := s.row(a[0])
		if err != nil {
			return err
		}
		for _, n := range s.ring().owners(text) {
			if err := s.holds(nameOf(n), a[0], -1); err != nil {
				return err
			}
		}
		return nil
	}},

	// The database.
	{text: "ROW changes", do: func(s *stage, a []string) error { return s.change(a[0], a[0], 0, 0) }},
	{text: "ROW changes, shown TIME later", do: func(s *stage, a []string) error { // the log has it, and readers do not see it yet
		return timed(a[1], func(d time.Duration) error { return s.change(a[0], a[0], d, 0) })
	}},
	{text: "ROW changes, logged TIME later", do: func(s *stage, a []string) error {
		return timed(a[1], func(d time.Duration) error { return s.change(a[0], a[0], 0, d) })
	}},
	{text: "ROW becomes ROW", do: func(s *stage, a []string) error { return s.change(a[0], a[1], 0, 0) }},

	// Readers, and whoever seeds a replica. One that has read nothing fills nothing.
	{text: "READER reads TEXT", do: func(s *stage, a []string) error { // it has missed, and reads the row
		r, text, err := s.row(a[1])
		if err == nil {
			s.readers[a[0]] = &reader{text: text, value: r.version(), node: s.ring().owners(text)[0]}
		}
		return err
	}},
	{text: "READER carries TEXT", do: func(s *stage, a []string) error { // it has missed, and looks at who had it under previous before it reads the row
		r, text, err := s.row(a[1])
		if err != nil {
			return err
		}
		s.readers[a[0]] = &reader{text: text, value: r.version(), node: s.ring().owners(text)[0]}
		if s.ring().old != nil {
			s.look(s.readers[a[0]], s.nodes[s.ring().old.AppendCopies(nil, text, 0)[0].Node])
		}
		return nil
	}},
	{text: "READER reads TEXT on NODE", do: func(s *stage, a []string) error {
		_, text, err := s.row(a[1])
		if err != nil {
			return err
		}
		r := &reader{text: text}
		if !s.look(r, s.nodes[address(a[2])]) {
			r.text = ""
		}
		s.readers[a[0]] = r
		return nil
	}},
	{text: "READER leases TEXT on NODE", do: func(s *stage, a []string) error { // and reads the row
		r, text, err := s.row(a[1])
		if err != nil {
			return err
		}
		s.leases++
		n := s.nodes[address(a[2])]
		n.change(func() { n.lease[text] = s.leases })
		s.readers[a[0]] = &reader{text: text, value: r.version(), node: n.name, lease: s.leases}
		return nil
	}},
	{text: "READER fills NODE", do: func(s *stage, a []string) error { return s.fills(a[0], address(a[1])) }},
	{text: "READER fills it", do: func(s *stage, a []string) error { // where it has missed
		r := s.readers[a[0]]
		if r == nil {
			return fmt.Errorf("%s has read nothing", a[0])
		}
		return s.fills(a[0], r.node)
	}},

	// Operators.
	{text: `ask for replay ID of (\w+) (\S+), (issued|committed) in the last TIME`, do: func(s *stage, a []string) error {
		target, err := targetOf(a[1], a[2])
		if err != nil {
			return err
		}
		return timed(a[4], func(d time.Duration) error {
			return s.ask(replay.Request{ID: a[0], Action: replay.Replay, Target: target, Window: replay.Window(a[3]), From: time.Now().Add(-d)})
		})
	}},
	{text: `ask for flush ID of (\w+) (\S+)`, do: func(s *stage, a []string) error {
		target, err := targetOf(a[1], a[2])
		if err != nil {
			return err
		}
		return s.ask(replay.Request{ID: a[0], Action: replay.Flush, Target: target})
	}},
	{text: "cancel ID", do: func(s *stage, a []string) error {
		return s.ask(replay.Request{ID: "cancel/" + a[0], Action: replay.Cancel, Of: a[0]})
	}},
})

// timed does something with a time that TIME has matched.
func timed(text string, do func(time.Duration) error) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	return do(d)
}

// number reads what NUM has matched.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// by is a deed of a worker.
func by(do func(w *worker) error) deed {
	return func(s *stage, a []string) error {
		w := s.workers[a[0]]
		if w == nil {
			return fmt.Errorf("%s does not run", a[0])
		}
		return do(w)
	}
}

// of is a deed about a node.
func of(do func(s *stage, n *node)) deed {
	return func(s *stage, a []string) error {
		n := s.nodes[address(a[0])]
		if n == nil {
			return fmt.Errorf("no record of the story has node %s", a[0])
		}
		do(s, n)
		return nil
	}
}

// linked is a deed between a worker and a node.
func linked(do func(l *link, n *node)) deed {
	return func(s *stage, a []string) error {
		return by(func(w *worker) error {
			return of(func(_ *stage, n *node) { do(w.link, n) })(s, a[1:])
		})(s, a)
	}
}

func refusal(is bool) deed {
	return func(s *stage, a []string) error {
		_, text, err := s.row(a[1])
		if err != nil {
			return err
		}
		return of(func(_ *stage, n *node) { n.change(func() { n.refuses[text] = is }) })(s, a)
	}
}

func (s *stage) blind(is bool) {
	for _, w := range s.workers {
		w.blind = is
	}
}

// thaw has a node go on, first with what lies on its sockets.
func (s *stage) thaw(n *node) {
	var texts []string
	n.change(func() { n.frozen, texts, n.sockets = false, n.sockets, nil })
	for _, text := range texts {
		s.put(n, text, gone, "deleted, and nobody asks any more")
	}
}

// kill ends a node for ever, with what it had not copied on.
func (s *stage) kill(n *node) {
	n.empty()
	n.change(func() { n.down, n.dead = true, true })
	for replica, list := range s.copying {
		left := list[:0]
		for _, c := range list {
			if c.from != n.name {
				left = append(left, c)
			}
		}
		s.copying[replica] = left
	}
}

// holds has a node have a text, as the row is now or at a version.
func (s *stage) holds(name, text string, version int) error {
	r, on, err := s.row(text)
	if err != nil {
		return err
	}
	if version < 0 {
		version = r.version()
	}
	return of(func(s *stage, n *node) {
		n.set(on, version)
		s.tell("%s has %s at version %d", name, text, version)
	})(s, []string{name})
}

// look has a reader have what a node holds, and reports whether it holds it.
func (s *stage) look(r *reader, n *node) bool {
	v, has := n.get(r.text)
	if has = has && !n.away(); has {
		r.value = v
		s.tell("a reader finds %s at version %d on %s", s.show(r.text), v, nameOf(n.name))
	}
	return has
}

// fills has a reader write what it has.
func (s *stage) fills(who, where string) error {
	r, n := s.readers[who], s.nodes[where]
	if r == nil || n == nil {
		return fmt.Errorf("%s has read nothing, or there is no node %s", who, nameOf(where))
	}
	delete(s.readers, who)
	s.fill(who, r, n)
	return nil
}

// fill writes what a reader has read, unless its lease is void.
func (s *stage) fill(who string, r *reader, n *node) {
	void := false
	n.change(func() { void = r.lease != 0 && n.lease[r.text] != r.lease })
	if r.text != "" && !n.away() && !void {
		s.put(n, r.text, r.value, "filled by "+who)
	}
}

// targetOf reads whose keys are meant: shard s0, node a, pool user, mapping profiles/user.
func targetOf(kind, name string) (t replay.Target, err error) {
	switch kind {
	case "shard":
		t.Shard = name
	case "node":
		t.Node = address(name)
	case "pool":
		t.Pool = name
	case "mapping":
		t.Mapping = name
	default:
		return t, fmt.Errorf("nothing is asked for of a %s: write shard, node, pool or mapping", kind)
	}
	return t, nil
}

// ask writes a request to the control topic, as the command line does.
func (s *stage) ask(q replay.Request) error {
	q.At, q.By = time.Now(), "ann@ops"
	value, err := replay.Encode(q)
	if err != nil {
		return err
	}
	return s.out.Write(context.Background(), s.cluster.Names.Control, q.ID, value)
}

// calm ends all faults. What died is dead, what a node refuses it refuses, and a reader that holds no lease has given up.
func (s *stage) calm() {
	s.tell("> (the faults are over)")
	for _, n := range s.nodes {
		switch {
		case n.dead:
		case n.down:
			n.empty()
			n.change(func() { n.down = false })
		case n.frozen:
			s.thaw(n)
		}
		n.change(func() { n.mute = false })
	}
	clear(s.held)
	clear(s.apart)
	s.blind(false)
	for _, w := range s.workers {
		clear(w.link.cut)
		w.kafka.cut(false)
		w.reads(true)
	}
}

// rested is how long it may take until everything is at rest.
const rested = 5 * time.Minute

// rest has everything come to rest, and compares each copy with its row.
func (s *stage) rest() error {
	s.calm()
	if len(s.workers) == 0 {
		return errors.New("end: no worker is left who could go on")
	}
	for end := time.Now().Add(rested); ; {
		s.pass(2 * time.Second)
		why, err := s.unrest()
		if err != nil {
			return fmt.Errorf("end: %w", err)
		}
		if why == "" {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("end: it does not come to rest: %s", why)
		}
	}
	for who, r := range s.readers {
		if r.lease != 0 { // whoever held a lease for long comes back now
			s.fill(who, r, s.nodes[r.node])
		}
	}
	s.pass(time.Second)
	if bad := s.stale(); len(bad) > 0 {
		return fmt.Errorf("end: %s", strings.Join(bad, "; "))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gaps) > 0 {
		return fmt.Errorf("end: gaps were recorded: %s", strings.Join(s.gaps, "; "))
	}
	return nil
}

// end ends all processes.
func (s *stage) end() {
	for _, w := range s.workers {
		w.kafka.cut(false)
		w.leave()
		w.end()
	}
	for slices.ContainsFunc(s.gone, (*worker).runs) {
		s.pass(step)
	}
	synctest.Wait() // nothing hangs in the cluster when it is closed
}
