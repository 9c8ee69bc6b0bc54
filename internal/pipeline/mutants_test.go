//go:build mutants

package pipeline

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a rule that is broken, by other text in place of some.
type mutant struct {
	name, rule string
	file       string      // of this folder
	texts      [][2]string // the first of each must be there once, the second takes its place
	also       *mutant     // another file and its texts: the rule stands twice
	theme      string      // MODEL_THEME and MODEL_SEED under which it was found soonest; empty: any
	seed       int
}

// mutantRuns is how many runs a mutant is given, from its seed on.
const mutantRuns = 1500

// Rules of the protocol. Some have no mutant, since nothing that the model has can come of breaking them: that the broker fences commits (a zombie's offset has
// its own rounds and debts behind it); that nobody issues under an older record than the last owner (who does acts on the record when it sees it, since its state
// has what it looked at itself); that a hole moves everything (what moved is not known then, and all counts in two places); that replay.window is in the margin
// (what else is in it is longer here). A record that comes late, and a round that a record overtakes, have tests of their own.
var mutants = []mutant{
	{name: "nosecond", rule: "a change has a second round", file: "change.go", texts: [][2]string{{"	plainRounds   = 2", "	plainRounds   = 1"}}},
	{name: "tworounds", rule: "a change has a third round while values are carried", file: "change.go", theme: "resize", seed: 80,
		texts: [][2]string{{"	carriedRounds = 3", "	carriedRounds = 2"}}},
	{name: "lateonce", rule: "a late change has one round only if nobody carries values", file: "track.go", theme: "resize stall slow", seed: 70,
		texts: [][2]string{{"c.round != 1 || c.rounds != plainRounds || c.under != today.View.Topology || today.View.Carrying(c.issued, t.p.w.opts.Settle)", "c.round != 1"}}},
	{name: "debtnext", rule: "a debt starts at the lowest offset that lacks", file: "partition.go",
		texts: [][2]string{{"if p.ledger.owe(node, offset, now, s) {", "if p.ledger.owe(node, p.taken.Load(), now, s) {"}},
		also:  notTurned},
	{name: "earlycommit", rule: "the watermark waits for acknowledgements", file: "window.go", texts: [][2]string{{"			return c.offset\n", "			return w.next\n"}}},
	{name: "nodeonly", rule: "a debt is paid on every copy", file: "change.go", theme: "seed cut", seed: 750,
		texts: [][2]string{{"		for _, cp := range copies[first:] {\n", `		for _, cp := range copies[first:] {
			if owes := false; c.lane > sink.Backlog {
				for _, d := range ledger.all() {
					owes = owes || d.name == cp.Node
				}
				if !owes {
					c.down()
					continue
				}
			}
`}}},
	{name: "afteronly", rule: "both images are mapped", file: "../../mapping/render.go", texts: [][2]string{
		{"	if c.Before != nil {\n		w.image(t, Before, c.Before, nil)", "	if c.Before != nil && c.After == nil {\n		w.image(t, Before, c.Before, nil)"}}},
	{name: "nodebts", rule: "debts are in the state", file: "keep.go", texts: [][2]string{{"	s.Debts = p.ledger.list()", "	s.Debts = []Debt{}"}}},
	{name: "secondfail", rule: "a second failure keeps the older from", file: "debt.go", theme: "full slow kill",
		texts: [][2]string{{"	d.from = min(d.from, offset)\n", "	d.from = offset\n"}}, also: notTurned},
	{name: "firstround", rule: "from follows the last round of a pass", file: "pass.go",
		texts: [][2]string{{"	mark := ps.track.mark()\n", "	ps.track.mark()\n	mark := ps.track.window.next\n"}}},
	{name: "passsettle", rule: "a pass has a second round", file: "track.go", texts: [][2]string{
		{"		case c.round < c.rounds && !t.enough(c, today):", "		case c.round < c.rounds && !t.enough(c, today) && c.lane <= sink.Backlog:"}}},
	{name: "transfer", rule: "a pass that meets another node off owes that node its offset", file: "change.go", theme: "seed cut copyloss alone", texts: [][2]string{
		{"is && ledger.withhold(cp.Node, c.offset) {", "is && (c.lane > sink.Backlog || ledger.withhold(cp.Node, c.offset)) {"},
		{"				c.t.p.owe(cp.Node, c.offset, c.lane)\n", "				if c.lane <= sink.Backlog {\n					c.t.p.owe(cp.Node, c.offset, c.lane)\n				}\n"},
		{"		c.t.p.owe(cp.Node, c.offset, c.lane) // before the copy", "		if c.lane <= sink.Backlog {\n			c.t.p.owe(cp.Node, c.offset, c.lane)\n		} // before the copy"},
	}},
	{name: "version", rule: "a pass pays nothing that was opened again", file: "ledger.go",
		texts: [][2]string{{"d == nil || d.version != taken[i].version", "d == nil"}}},
	{name: "replica", rule: "a replica that goes off owes what may have been overtaken", file: "turned.go", theme: "down copyloss", seed: 45,
		texts: [][2]string{{"at.Add(-p.w.opts.Window)", "at.Add(p.w.opts.Window)"}}},
	{name: "jsecond", rule: "second rounds stand in the journal", file: "track.go", theme: "down copyloss", seed: 195, texts: [][2]string{
		{"a key's hash\n	t.p.journal.note(now, today, c.lane, c.offset)\n", "a key's hash\n	if c.round == 0 {\n		t.p.journal.note(now, today, c.lane, c.offset)\n	}\n"},
		{"acked {\n		t.p.journal.note(now, today, c.lane, c.offset)\n", "acked {\n		if c.round == 1 {\n			t.p.journal.note(now, today, c.lane, c.offset)\n		}\n"},
	}},
	{name: "hotstate", rule: "a new hot key is acted on when its copies are deleted", file: "hot.go", theme: "hot hotlag slow",
		texts: [][2]string{{"		p.w.hot.want(v, keys)", "		v.left.Store(0)"}}},
	{name: "hotoff", rule: "a node that is off holds back its hot keys", file: "hot.go", theme: "hot hotlag cut", seed: 900,
		texts: [][2]string{{"		if len(off) > 0 {", "		if len(off) > 99 {"}}, also: notTurned},

	// Of changes of the ring.
	{name: "nopromo", rule: "what was sent is done again when the ring changes", file: "epoch.go", theme: "resize ringlag",
		texts: [][2]string{{"p.movedRanges(v, a, epoch, since), nil, today)", "p.movedRanges(v, a, epoch, since)[:0], nil, today)"}}},
	{name: "nomoves", rule: "not only promotions make what was sent due again", file: "moved.go", theme: "resize ringlag",
		texts: [][2]string{{"return m.all || m.Moved(key, hot)", "return len(m.Promoted()) > 0 && (m.all || m.Moved(key, hot))"}}},
	{name: "actedearly", rule: "what was acted on is done, or in the state's debts", file: "keep.go", theme: "resize ringlag kill",
		texts: [][2]string{{"	s.Debts = p.ledger.list()", "	s.Debts = slices.DeleteFunc(p.ledger.list(), func(d Debt) bool { return d.Kind == KindEpoch })"}}},
	{name: "margin", rule: "the window has a margin before the last moment that nothing newer was held", file: "epoch.go", theme: "promote",
		texts: [][2]string{{"	return at.Add(-max(o.Window, o.Settle+o.MaxLag+lateBy) - clocksDiffer - lineWide)", "	return at.Add(time.Duration(o.Window) * 0)"}}},
	{name: "jkeep", rule: "the journal is kept as long as nobody knows what etcd holds", file: "journal.go", theme: "promote ringlag",
		texts: [][2]string{{"		if l.At < since.Unix() || l.At > to.Unix() {", "		if l.At < since.Unix() || l.At > to.Unix() || time.Since(time.Unix(l.At, 0)) > 10*time.Second {"}}},
	{name: "jnext", rule: "the next owner has the journal of those before", file: "partition.go", theme: "promote ringlag kill",
		texts: [][2]string{{"p.journal.restore(time.Now(), state.Journal, was.Journal)", "p.journal.restore(time.Now(), nil, nil)"}}},
	{name: "former", rule: "nodes of the records before stay targets", file: "../../sink/registry/past.go", theme: "replace pause",
		texts: [][2]string{{"sink.NewTopology(t.Record, records...)", "sink.NewTopology(t.Record)"}}},
	{name: "noprev", rule: "deletes go to the owners under previous, and under the records before", file: "../../sink/topology.go", theme: "resize",
		texts: [][2]string{{"append([]*Record{r}, former...)", "[]*Record{r}"}, {"		for _, shards := range record.rings() {", "		for _, shards := range [][]Shard{record.Shards} {"}}},
	{name: "gainflush", rule: "what a node gains while a record was seen by nobody is flushed", file: "epoch.go", theme: "replace skip pause",
		texts: [][2]string{{"	if p.w.opts.RingFlusher == nil {", "	if true {"}}},
	{name: "formerprimary", rule: "what a former primary owes is done again", file: "epoch.go", theme: "promote down copyloss pause",
		texts: [][2]string{{"; owes {", "; owes && false {"}}},
	{name: "turned", rule: "a primary that goes off owes what its replica may lack", file: "turned.go", theme: "promote down copyloss pause",
		texts: [][2]string{{"	if !t.Names(node) || on && !t.IsReplica(node) {", "	if !t.IsReplica(node) {"}}},
}

// notTurned has no node owe what was issued before it went off, which hides what else is wrong of its debt.
var notTurned = &mutant{file: "turned.go", texts: [][2]string{{"	if offset, any := p.journal.lowest(at.Add(-p.w.opts.Window)); any {", "	if offset, any := p.journal.lowest(at.Add(time.Hour)); any {"}}}

// Every broken rule is found by TestModel. go test -tags mutants -run TestMutants ./internal/pipeline
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			bin := filepath.Join(t.TempDir(), "mutant.test")
			if out, err := exec.Command("go", "test", "-c", "-o", bin, "-overlay", overlay, ".").CombinedOutput(); err != nil {
				t.Fatalf("building: %v\n%s", err, out)
			}
			run := exec.Command(bin, "-test.run", "^TestModel$")
			run.Env = append(os.Environ(), fmt.Sprintf("MODEL_SEED=%d", max(m.seed, 1)), fmt.Sprintf("MODEL_RUNS=%d", mutantRuns))
			if m.theme != "" {
				run.Env = append(run.Env, "MODEL_THEME="+m.theme)
			}
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatalf("%q is broken, and %d runs find nothing", m.rule, mutantRuns)
			}
			_, found, ok := strings.Cut(string(out), "seed ")
			if !ok {
				t.Fatalf("it ends otherwise than by what the model says: %v\n%s", err, out)
			}
			t.Logf("seed %.200s", found)
		})
	}
}

// overlay writes the mutated file, and a file that has go build take it.
func (m *mutant) overlay(t *testing.T) string {
	t.Helper()
	dir, files := t.TempDir(), map[string]string{}
	for part := m; part != nil; part = part.also {
		path, err := filepath.Abs(part.file)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = filepath.Join(dir, fmt.Sprintf("mutated%d.go", len(files)))
		part.write(t, files[path])
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// write writes a file with the texts in it.
func (m *mutant) write(t *testing.T, to string) {
	t.Helper()
	b, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, r := range m.texts {
		if n := strings.Count(text, r[0]); n != 1 {
			t.Fatalf("%s has %q %d times, want once: the code changed, and the mutant must follow", m.file, r[0], n)
		}
		text = strings.Replace(text, r[0], r[1], 1)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
