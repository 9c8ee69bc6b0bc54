package stories

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/obs/obstest"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// What all stories are told with. A plain fill is over within settle of reading the row; a primary copies to its replicas within window.
const (
	settle  = 2 * time.Second
	maxLag  = 2 * time.Second // node.max_lag
	window  = 8 * time.Second // replay.window
	ringLag = 5 * time.Second // within which clients see a record: cache.ring.lag
	fleet   = "fleet"
	users   = "shop.shop.users"
)

// stage is all that a story moves. Its fields are the story's goroutine's own, but for what says otherwise.
type stage struct {
	t     *testing.T
	began time.Time
	log   obstest.Log

	cluster    *changelogtest.Cluster
	adm        *kadm.Client
	cl         *kgo.Client // writes the log
	out        *changelog.Writer
	past       *changelog.Log
	store      *changelog.StateStore
	partitions int
	asks       bool // workers follow the control topic, and one conducts flushes

	rows    map[string]*row
	rings   []*ring                    // by time
	planned map[int64]*ring            // of the whole story
	sights  []registry.Sight           // that workers have written down
	hot     []map[string]sink.HotEntry // by revision
	hotSeen int                        // the greatest that a worker has written down
	nodes   map[string]*node           // of all records that will come
	copying map[string][]copied        // by replica
	held    map[string]bool            // replicas that get nothing for now
	apart   map[string]bool            // nodes that no worker reaches
	readers map[string]*reader
	leases  int
	workers map[string]*worker
	gone    []*worker // that were killed, or left
	later   []event
	logged  int64 // records of the log

	mu     sync.Mutex // guards what follows, to which workers add
	parked []string   // texts, with their nodes
	gaps   []string

	telling sync.Mutex // guards told
	told    []string
}

// row is a row, whose key in the cache is user:<number>, or a key of pool feed, which no row gives.
type row struct {
	name      string
	text      string
	partition int32
	shown     []time.Time // when each version shows; the row is at version 0 before
}

// version is that which a reader of the database sees now.
func (r *row) version() int {
	n := 0
	for _, at := range r.shown {
		if !at.After(time.Now()) {
			n++
		}
	}
	return n
}

// copied is a set or a delete (gone) on its way from a primary to a replica.
type copied struct {
	from, text string
	value      int
}

// gone is what is copied of a delete.
const gone = -1

// reader is a client, or whoever seeds a replica, between its reading of a value and its writing.
type reader struct {
	text  string // empty: it has nothing to write
	value int
	node  string // where it has missed; empty: nowhere
	lease int    // that it holds there; 0: none
}

// event is what is to happen later.
type event struct {
	at time.Time
	do func() error
}

var mappings = func() *mapping.Set {
	f, problems := mapping.Parse("stories.yaml", []byte(`version: 1
team: profiles
pools: [user]
underivable: [feed]
mappings:
  - {name: user, table: shop.users, keys: ["user:{name}"]}
`))
	if mapping.HasErrors(problems) {
		panic(fmt.Sprint(problems))
	}
	set, problems := mapping.NewSet([]*mapping.File{f})
	if mapping.HasErrors(problems) {
		panic(fmt.Sprint(problems))
	}
	return set
}()

// newStage makes a cluster, and what a story's text says of the world.
func newStage(t *testing.T, text string) (*stage, error) {
	s := &stage{t: t, began: time.Now(), partitions: 1, rows: map[string]*row{}, planned: map[int64]*ring{}, hot: []map[string]sink.HotEntry{{}}, nodes: map[string]*node{},
		copying: map[string][]copied{}, held: map[string]bool{}, apart: map[string]bool{}, readers: map[string]*reader{}, workers: map[string]*worker{}}
	if err := sentences(text, s.foresee); err != nil {
		return s, err
	}
	s.cluster = changelogtest.Start(t)
	s.adm = s.cluster.Admin(t)
	var err error
	if s.cl, err = s.cluster.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		return s, err
	}
	t.Cleanup(s.cl.Close)
	if s.out, err = changelog.OpenWriter(s.cluster.Options); err != nil {
		return s, err
	}
	t.Cleanup(s.out.Close)
	if s.past, err = changelog.OpenLog(s.cluster.Options); err != nil {
		return s, err
	}
	t.Cleanup(s.past.Close)
	if s.store, err = changelog.OpenState(s.cluster.Options, s.cluster.Names.State); err != nil {
		return s, err
	}
	t.Cleanup(s.store.Close)
	_, err = changelog.EnsureTopics(context.Background(), s.adm, []changelog.TopicSpec{changelog.Settings{Partitions: int32(s.partitions)}.Change(users)})
	return s, err
}

var (
	partitionsForm = regexp.MustCompile(`^partitions (\d+)$`)
	recordForm     = regexp.MustCompile(`^record (\d+)(?:, written \S+ ago)?: (.+)$`)
)

// asksForm are sentences of requests, or of what may make workers ask for a flush that counts.
var asksForm = regexp.MustCompile(`^ask for | (?:is|was) (?:done|refused|asked for)\b|\bblind$|has no f`)

// foresee takes in what has to be known before a story begins: the ring records that will come, and with them which keys its rows have; and whether anybody has to follow
// the control topic, which costs as much as all else of a worker.
func (s *stage) foresee(sentence string) error {
	s.asks = s.asks || asksForm.MatchString(sentence)
	if m := partitionsForm.FindStringSubmatch(sentence); m != nil {
		s.partitions, _ = strconv.Atoi(m[1])
	}
	if m := recordForm.FindStringSubmatch(sentence); m != nil {
		epoch, _ := strconv.ParseInt(m[1], 10, 64)
		r, err := ringOf(epoch, time.Now(), m[2])
		if err != nil {
			return err
		}
		s.asks = s.asks || epoch > 1 && s.planned[epoch-1] == nil // of a record that nobody saw
		s.planned[epoch] = r
		for _, shards := range []map[string][]string{r.shards, r.previous} {
			for _, nodes := range shards {
				for _, n := range nodes {
					s.addNode(n)
				}
			}
		}
	}
	return nil
}

// addRow makes a row, or a key of pool feed, that lies where it is to.
func (s *stage) addRow(name, where string) error {
	places, err := placesOf(where)
	if err != nil {
		return err
	}
	pool := "user"
	if strings.HasPrefix(name, "f") {
		pool = "feed"
	}
	n, err := choose(pool, 1000*len(s.rows), places, s.planned)
	if err != nil {
		return err
	}
	s.rows[name] = &row{name: name, text: fmt.Sprintf("%s:%d", pool, n), partition: int32(len(s.rows) % s.partitions)}
	return nil
}

// row gives the row of a text as stories write it, and the text as nodes have it: x#1 is the first hot copy of x.
func (s *stage) row(text string) (*row, string, error) {
	name, n, hot := strings.Cut(text, "#")
	r := s.rows[name]
	switch {
	case r == nil:
		return nil, "", fmt.Errorf("there is no row %s", name)
	case hot:
		return r, r.text + "#" + n, nil
	}
	return r, r.text, nil
}

// ring is the newest record.
func (s *stage) ring() *ring { return s.rings[len(s.rings)-1] }

// publish has the manager write a record.
func (s *stage) publish(epoch int64, at time.Time, text string) error {
	r, err := ringOf(epoch, at, text)
	if err != nil {
		return err
	}
	if len(s.rings) > 0 && epoch <= s.ring().epoch {
		return fmt.Errorf("its epoch is not above %d", s.ring().epoch)
	}
	s.rings = append(s.rings, r)
	for replica, list := range s.copying { // who copies to nobody, or to another, takes with it what was under way
		s.copying[replica] = slices.DeleteFunc(list, func(c copied) bool { return !slices.Contains(r.copiesTo(c.from), replica) })
	}
	return nil
}

// change commits a change of a row, or moves it from one name to another. Readers see it after a time, and so does the log.
func (s *stage) change(from, to string, shown, logged time.Duration) error {
	at := time.Now().Add(shown)
	var rows []*row
	for _, name := range slices.Compact([]string{from, to}) {
		r := s.rows[name]
		if r == nil {
			return fmt.Errorf("there is no row %s", name)
		}
		r.shown = append(r.shown, at)
		rows = append(rows, r)
	}
	before, after := rows[0], rows[len(rows)-1]
	image := func(r *row) cdc.Row {
		return cdc.Row{{Kind: cdc.Integer, S: strings.TrimPrefix(before.text, "user:")}, {Kind: cdc.Text, S: strings.TrimPrefix(r.text, "user:")}}
	}
	c := &cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: cdc.Update,
		Columns: userColumns, Before: image(before), After: image(after), CommitTime: time.Now(),
	}
	key, value, err := envelope.Encode(c, envelope.Options{}, nil)
	if err != nil {
		return err
	}
	return s.after(logged, func() error {
		s.logged++
		return s.cl.ProduceSync(context.Background(), &kgo.Record{Topic: users, Partition: before.partition, Key: key, Value: value}).FirstErr()
	})
}

var userColumns = cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint unsigned", Key: true}, {Name: "name", Type: "varchar(200)"}})

// after does something later, or at once.
func (s *stage) after(d time.Duration, do func() error) error {
	if d == 0 {
		return do()
	}
	s.later = append(s.later, event{time.Now().Add(d), do})
	return nil
}

// makeHot gives a row so many hot copies in the registry; 0: it is no longer hot.
func (s *stage) makeHot(r *row, copies int) {
	next, revision := map[string]sink.HotEntry{}, int64(len(s.hot))
	for key, e := range s.hot[len(s.hot)-1] {
		next[key] = e
	}
	next[r.text] = sink.HotEntry{Copies: copies, Revision: revision, Most: max(next[r.text].Most, copies)}
	s.hot = append(s.hot, next)
}

// tick is what happens by itself.
func (s *stage) tick() {
	var due []event
	now := time.Now()
	is := func(e event) bool { return !e.at.After(now) }
	for _, e := range s.later {
		if is(e) {
			due = append(due, e)
		}
	}
	s.later = slices.DeleteFunc(s.later, is)
	for _, e := range due {
		if err := e.do(); err != nil {
			s.t.Error(err)
		}
	}
	for _, replica := range slices.Sorted(maps.Keys(s.copying)) {
		if !s.held[replica] {
			s.copyTo(replica)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.workers)) {
		s.workers[name].look()
		s.workers[name].link.tick()
	}
	for _, w := range s.gone { // who drains awaits answers
		if !w.link.dead {
			w.link.tick()
		}
	}
}

// copyTo has all that is under way to a replica arrive, if it is there.
func (s *stage) copyTo(replica string) {
	n, list := s.nodes[replica], s.copying[replica]
	if n.away() {
		return
	}
	delete(s.copying, replica)
	for _, c := range list {
		s.put(n, c.text, c.value, "copied from "+nameOf(c.from))
	}
}

// put sets a text on a node, or deletes it (gone). A primary copies it on, later; a replica does not.
func (s *stage) put(n *node, text string, value int, why string) {
	n.set(text, value)
	what := fmt.Sprintf("has %s at version %d", s.show(text), value)
	if value == gone {
		what = "has no " + s.show(text)
	}
	s.tell("%s %s (%s)", nameOf(n.name), what, why)
	if strings.HasPrefix(why, "copied") {
		return
	}
	for _, r := range s.ring().copiesTo(n.name) {
		s.copying[r] = append(s.copying[r], copied{n.name, text, value})
	}
}

// show is a text of a node as stories write it.
func (s *stage) show(text string) string {
	key, n, hot := strings.Cut(text, "#")
	for name, r := range s.rows {
		if r.text == key && hot {
			return name + "#" + n
		} else if r.text == key {
			return name
		}
	}
	return text
}

// stale are the copies that a reader could read and that are not their rows.
func (s *stage) stale() (bad []string) {
	for _, r := range s.rows {
		for i := range s.hot[len(s.hot)-1][r.text].Copies + 1 {
			text := r.text
			if i > 0 {
				text = fmt.Sprintf("%s#%d", r.text, i)
			}
			for _, owner := range s.ring().owners(text) {
				n := s.nodes[owner]
				if v, has := n.get(text); has && !n.dead && v != len(r.shown) {
					bad = append(bad, fmt.Sprintf("%s has %s at version %d, the row is at %d", nameOf(owner), s.show(text), v, len(r.shown)))
				}
			}
		}
	}
	slices.Sort(bad)
	return bad
}
