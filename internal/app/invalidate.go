package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/owed"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink"
)

// MaxReason bounds why keys are sent, and who sends them, in bytes: it stands in each of their records.
const MaxReason = 1000

// Invalidator deletes keys through the log, for a person. It needs Kafka alone: what it knows of pools and of the ring is what the fleet has written down.
type Invalidator struct {
	config *config.Config
	kafka  changelog.Options
	names  changelog.Names
	rules  keyRules
}

// OpenInvalidator asks the state topic for the mapping files and the ring record in force.
func OpenInvalidator(ctx context.Context, c *config.Config, log *slog.Logger) (*Invalidator, error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, err
	}
	names := changelog.NamesFor(c.Kafka.TopicPrefix)
	store, err := openStateToRead(ctx, o, names.State)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	mappingKeys, ringKeys := changelog.KeysUnder("mappings", c.Kafka.Group), changelog.KeysUnder("ring", c.Kafka.Group)
	st, err := store.LoadOnly(ctx, func(key []byte) bool { return mappingKeys(key) || ringKeys(key) })
	if err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("%w (run makes it when it starts; is kafka.topic_prefix right?)", err)
		}
		return nil, err
	}
	prefix, err := savedPrefix(st, c.Kafka.Group)
	if err != nil {
		log.Warn("the ring record in force cannot be read: whether keys fit behind its key_prefix is not known", "error", err)
	}
	return &Invalidator{c, o, names, keyRules{savedSet(st, c.Kafka.Group), prefix, c.Cache.Protocol}}, nil
}

// savedSet is the fleet's mapping files in force, as far as they can be read.
func savedSet(st *changelog.State, fleet string) *mapping.Set {
	var files []*mapping.File
	for _, s := range st.LoadMappings(fleet) {
		if s.Err != nil || !s.Gone.IsZero() {
			continue
		}
		if f, _ := mapping.Parse(s.Name, []byte(s.Text)); f != nil {
			files = append(files, f)
		}
	}
	set, _ := mapping.NewSet(files)
	return set
}

// savedPrefix is the key_prefix of the newest ring record that a worker has seen; none where there is no record.
func savedPrefix(st *changelog.State, fleet string) (string, error) {
	rings, bad := st.LoadRings(fleet)
	if len(rings) == 0 {
		return "", bad
	}
	newest := rings[slices.Max(slices.Collect(maps.Keys(rings)))]
	record, err := sink.ParseRecord(changelog.RingKey(fleet, newest.Epoch), newest.Record)
	if err != nil {
		return "", err
	}
	return record.KeyPrefix, nil
}

// KeyProblem is a key that cannot be deleted, for no client can have it.
type KeyProblem struct {
	At   int // among the keys, from 0
	Key  string
	What string
}

// CheckedKeys are keys, looked at before anything is written.
type CheckedKeys struct {
	Keys      []string // that can be deleted, each once, in their order
	Problems  []KeyProblem
	Unclaimed []UnclaimedPool // pools of keys, which no mapping file in force claims; sorted
}

// UnclaimedPool is a pool of nobody's. Its keys can be deleted all the same.
type UnclaimedPool struct {
	Pool    string
	Nearest string // a pool that there is; empty: none is like it
	Keys    int
	Hint    string // what else may be wrong
}

func (u UnclaimedPool) String() string {
	text := fmt.Sprintf("pool %q is none of the fleet's", u.Pool)
	switch {
	case u.Hint != "":
		text += ": " + u.Hint
	case u.Nearest != "":
		text += fmt.Sprintf(": did you mean %q?", u.Nearest)
	}
	return text
}

// Check looks at keys.
func (i *Invalidator) Check(keys []string) CheckedKeys { return i.rules.check(keys) }

// keyRules say which keys can be deleted.
type keyRules struct {
	set      *mapping.Set
	prefix   string // the ring's key_prefix
	protocol string // cache.protocol
}

func (r keyRules) check(keys []string) (c CheckedKeys) {
	seen := make(map[string]struct{}, len(keys))
	unclaimed := map[string]*UnclaimedPool{}
	claimed := allPools(r.set)
	for at, key := range keys {
		if _, again := seen[key]; again {
			continue
		}
		seen[key] = struct{}{}
		t, wrong := r.set.CheckSent(key)
		if wrong == "" {
			wrong = r.wire(key, t.Hot)
		}
		if wrong != "" {
			c.Problems = append(c.Problems, KeyProblem{at, key, wrong})
			continue
		}
		c.Keys = append(c.Keys, key)
		if t.Pool == mapping.UnclaimedPool {
			pool := mapping.PoolOf(key)
			if unclaimed[pool] == nil {
				unclaimed[pool] = r.unclaimed(pool, key, claimed)
			}
			unclaimed[pool].Keys++
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(unclaimed)) {
		c.Unclaimed = append(c.Unclaimed, *unclaimed[pool])
	}
	return c
}

func (r keyRules) unclaimed(pool, key string, claimed []string) *UnclaimedPool {
	u := &UnclaimedPool{Pool: pool}
	switch {
	case r.prefix != "" && strings.HasPrefix(key, r.prefix):
		u.Hint = fmt.Sprintf("leave the ring's key_prefix %q out", r.prefix)
	case len(claimed) == 0:
		u.Hint = "no mapping file is in force"
	default:
		u.Nearest = mapping.Nearest(pool, claimed)
	}
	return u
}

// wire says why a key that a mapping set takes, with so many hot copies, does not fit behind the ring's prefix, or into the nodes' protocol: workers park it.
func (r keyRules) wire(key string, hot int) string {
	wire := r.prefix + key
	if hot > 0 {
		wire += "#" + strconv.Itoa(hot)
	}
	inBase64, err := sink.CheckMetaKey(wire)
	var bad *sink.KeyError
	switch {
	case errors.As(err, &bad) && hot > 0:
		return fmt.Sprintf("with the ring's key_prefix %q and the names of its pool's %d hot copies %s", r.prefix, hot, bad.Problem)
	case err != nil:
		return fmt.Sprintf("with the ring's key_prefix %q %s", r.prefix, bad.Problem)
	case inBase64 && r.protocol == "classic":
		return "it has a space or a control byte, and the nodes are spoken to in the classic protocol, which cannot say it (cache.protocol)"
	}
	return ""
}

// allPools are those that the files of a set claim, sorted.
func allPools(set *mapping.Set) (all []string) {
	for _, f := range set.Files() {
		all = append(append(all, f.Pools...), f.Underivable...)
	}
	slices.Sort(all)
	return all
}

// Write writes keys to the log, where the workers take them. told is called with how many are there.
func (i *Invalidator) Write(ctx context.Context, s changelog.SentKeys, told func(keys int)) (changelog.KeysWritten, error) {
	w, err := changelog.OpenKeyWriter(i.kafka, i.names.Keys)
	if err != nil {
		return changelog.KeysWritten{}, err
	}
	defer w.Close()
	return w.Write(ctx, s, told)
}

// Wait returns when the workers have passed what was written, with what is still owed of it then. told is called with how many records are passed, and with
// the error of a look that failed.
func (i *Invalidator) Wait(ctx context.Context, k changelog.KeysWritten, told func(passed, all int64, err error)) ([]Owing, error) {
	group := i.config.Kafka.Group
	if err := changelog.AwaitCommits(ctx, i.kafka, group, k.Spans, told); err != nil {
		return nil, err
	}
	store, err := changelog.OpenState(i.kafka, i.names.State)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	// A state is written before the commit that points to it: what is owed of what the commits have passed stands there by now.
	state, err := store.LoadOnly(ctx, owed.Wanted(group))
	if err != nil {
		return nil, err
	}
	sum := owed.NewSum(group)
	for key, e := range state.Under("partition", group) {
		sum.Apply(key, e.Value)
	}
	return owingOf(sum, k.Spans)
}

// owingOf is what is owed of some spans: a debt of a node is one where it may lack any of them.
func owingOf(sum *owed.Sum, spans []changelog.Span) ([]Owing, error) {
	by := map[owed.Owner]*Owing{}
	for _, s := range spans {
		debts, err := sum.Debts(s.Partition)
		if err != nil {
			return nil, fmt.Errorf("what is owed of %s is not known: %w", s.Partition, err)
		}
		for who, d := range debts {
			to := s.To
			if d.To != nil {
				to = min(to, *d.To)
			}
			from := max(s.From, d.From)
			if from >= to {
				continue
			}
			o := by[who]
			if o == nil {
				o = &Owing{Owes: who.Kind, Name: who.Name, Since: d.Since}
				by[who] = o
			}
			o.Partitions, o.Records, o.Open = o.Partitions+1, o.Records+to-from, o.Open || d.To == nil
			if d.Since.Before(o.Since) {
				o.Since = d.Since
			}
		}
	}
	var all []Owing
	for _, o := range by {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b Owing) int { return cmp.Or(cmp.Compare(a.Owes, b.Owes), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// readsOf is what workers read: the topics of every source, and that of keys, from its beginning on.
func readsOf(c *config.Config) ([]*pipeline.Source, []changelog.Start, error) {
	sources, starts, err := topicsOf(c)
	if err != nil {
		return nil, nil, err
	}
	keys := pipeline.KeySource(changelog.NamesFor(c.Kafka.TopicPrefix).Keys)
	return append(sources, keys), append(starts, changelog.Start{Pattern: keys.Pattern, At: "earliest"}), nil
}
