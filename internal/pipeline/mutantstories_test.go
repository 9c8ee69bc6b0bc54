//go:build mutants

package pipeline

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// storyMutants are the mutants that a story of test/stories catches, by name, and the story. What alone cannot do harm in a story of a few sentences (secondfail: what a pass
// withholds lowers the debt again) is left to TestModel.
var storyMutants = []struct{ mutant, story string }{
	{"nosecond", "late-fill"},
	{"tworounds", "third-round"},
	{"lateonce", "late-change-is-carried"},
	{"debtnext", "second-delete-is-lost"},
	{"earlycommit", "answers-held"},
	{"nodeonly", "debt-is-paid-on-every-copy"},
	{"afteronly", "row-moves"},
	{"nodebts", "debt-outlives-its-owner"},
	{"firstround", "killed-between-rounds-of-a-pass"},
	{"passsettle", "pass-has-two-rounds"},
	{"transfer", "pass-meets-another-node-off"},
	{"replica", "replica-overtaken"},
	{"jsecond", "replica-overtaken"},
	{"hotstate", "hot-copies-seen-late"},
	{"hotoff", "hot-copies"},
	{"nopromo", "promotion"},
	{"nomoves", "record-seen-late"},
	{"actedearly", "killed-as-it-replays"},
	{"margin", "promotion"},
	{"jkeep", "registry-away-for-a-minute"},
	{"jnext", "worker-away-when-a-primary-dies"},
	{"former", "former-owner"},
	{"noprev", "resize"},
	{"gainflush", "epoch-that-nobody-saw"},
	{"formerprimary", "former-primary-owes"},
	{"newest", "next-owner-sees-less"},
	{"jpass", "pass-under-an-old-record"},
}

// moreMutants are broken rules that TestModel does not find soon enough, and a story does.
var moreMutants = []mutant{
	{name: "newest", rule: "nobody issues under an older record than the last owner", file: "sight.go",
		texts: [][2]string{{"if v = p.w.opts.Snapshots.Current().View; p.sees(v) {", "if v = p.w.opts.Snapshots.Current().View; true {"}}},
	{name: "jpass", rule: "what passes send stands in the journal", file: "track.go", texts: [][2]string{
		{"a key's hash\n	t.p.journal.note(now, today, c.lane, c.offset)\n", "a key's hash\n	if c.lane <= sink.Backlog {\n		t.p.journal.note(now, today, c.lane, c.offset)\n	}\n"},
		{"acked {\n		t.p.journal.note(now, today, c.lane, c.offset)\n", "acked {\n		if c.lane <= sink.Backlog {\n			t.p.journal.note(now, today, c.lane, c.offset)\n		}\n"},
	}},
}

// Each of these broken rules is caught by its story. go test -tags mutants -run TestStoriesCatchMutants ./internal/pipeline
func TestStoriesCatchMutants(t *testing.T) {
	by := map[string]*mutant{}
	for _, list := range [][]mutant{mutants, moreMutants} {
		for i := range list {
			by[list[i].name] = &list[i]
		}
	}
	for _, sm := range storyMutants {
		t.Run(sm.mutant, func(t *testing.T) {
			m := by[sm.mutant]
			if m == nil {
				t.Fatal("there is no such mutant")
			}
			overlay, bin := m.overlay(t), filepath.Join(t.TempDir(), "stories.test")
			if out, err := exec.Command("go", "test", "-c", "-tags", "synctests", "-o", bin, "-overlay", overlay, "invalidator/test/stories").CombinedOutput(); err != nil {
				t.Fatalf("building: %v\n%s", err, out)
			}
			run := exec.Command(bin, "-test.run", "^TestStories$/^"+sm.story+"$")
			run.Dir = "../../test/stories"
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatalf("%q is broken, and the story %s ends well", m.rule, sm.story)
			}
			_, found, ok := strings.Cut(string(out), sm.story+".txt:")
			if !ok {
				t.Fatalf("it ends otherwise than by what the story says: %v\n%s", err, out)
			}
			found, _, _ = strings.Cut(found, "\n")
			t.Log(found)
		})
	}
}
