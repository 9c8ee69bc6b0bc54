package registry

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFileFollowsTheRing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.json")
	replace(t, path, record(1))
	_, log := newReports()
	w := NewFile(path, "", Options{}, log)
	start(t, w)
	<-w.Ready()
	first := w.View()
	if first.Topology.Epoch() != 1 || first.Hot.Len() != 0 || time.Since(first.Confirmed) > patience {
		t.Errorf("got epoch %d, %d hot keys, confirmed %v", first.Topology.Epoch(), first.Hot.Len(), first.Confirmed)
	}
	replace(t, path, record(2))
	if v := awaitEpoch(t, w, 2); !v.Confirmed.After(first.Confirmed) {
		t.Error("Confirmed did not move")
	}
	if first.Topology.Epoch() != 1 {
		t.Error("the first view was changed")
	}
}

func TestFileFollowsHotKeys(t *testing.T) {
	ring, hot := filepath.Join(t.TempDir(), "ring.json"), filepath.Join(t.TempDir(), "hot.json")
	replace(t, ring, record(1))
	replace(t, hot, `{"feed:1": {"copies": 8}}`)
	reports, log := newReports()
	w := NewFile(ring, hot, Options{}, log)
	start(t, w)
	v := await(t, w, "feed:1", func(v *View) bool { return v.Hot.Copies("feed:1") == 8 })
	replace(t, hot, `{"feed:2": {"copies": 4}}`)
	if next := await(t, w, "feed:2", func(v *View) bool { return v.Hot.Copies("feed:2") == 4 }); next.Hot.Copies("feed:1") != 0 ||
		next.Hot.Revision() <= v.Hot.Revision() {
		t.Errorf("feed:1 has %d copies, revision %d after %d", next.Hot.Copies("feed:1"), next.Hot.Revision(), v.Hot.Revision())
	}
	replace(t, hot, `{"feed:2": {"copies": 0}}`)
	reports.await(t, "copies is 0")
	replace(t, ring, record(2)) // goes on beside it
	if v := awaitEpoch(t, w, 2); v.Hot.Copies("feed:2") != 4 {
		t.Errorf("the last good hot keys are gone: feed:2 has %d copies", v.Hot.Copies("feed:2"))
	}
}

func TestFileKeepsTheLastGoodRing(t *testing.T) {
	for name, c := range map[string]struct{ content, report string }{
		"broken":                 {`{"epoch": 8, `, "ends in the middle"},
		"empty":                  {"", "ends in the middle"},
		"not valid":              {`{"epoch": 8, "shards": []}`, "there are no shards"},
		"older":                  {record(6), "epoch 6 is older than 7"},
		"changed under an epoch": {strings.Replace(record(7), "a:1", "b:1", 1), "its epoch is still 7"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ring.json")
			replace(t, path, record(7))
			reports, log := newReports()
			w := NewFile(path, "", Options{}, log)
			start(t, w)
			<-w.Ready()
			replace(t, path, c.content)
			reports.await(t, c.report)
			if v := w.View(); v.Topology.Epoch() != 7 || v.Topology.Nodes()[0] != "a:1" {
				t.Errorf("got epoch %d at %v", v.Topology.Epoch(), v.Topology.Nodes())
			}
			replace(t, path, record(9))
			awaitEpoch(t, w, 9)
			reports.await(t, "trouble is over")
		})
	}
}

// A record that is not in use is no confirmation of the one that is.
func TestFileConfirmsOnlyWhatItHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ring.json")
	replace(t, path, record(7))
	reports, log := newReports()
	w := NewFile(path, "", Options{}, log)
	w.poll = time.Millisecond
	start(t, w)
	<-w.Ready()
	replace(t, path, record(6))
	reports.await(t, "older")
	<-w.Changed()
	confirmed := w.View().Confirmed
	<-w.Changed()
	if got := w.View().Confirmed; !got.Equal(confirmed) {
		t.Errorf("Confirmed moved from %v to %v", confirmed, got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reports.await(t, "no such file")
	replace(t, path, record(7))
	await(t, w, "a later Confirmed", func(v *View) bool { return v.Confirmed.After(confirmed) })
}

// A folder mounted by Kubernetes: the file is a link to a link, and the second is swapped.
func TestFileFollowsASwappedLink(t *testing.T) {
	dir := t.TempDir()
	for i, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		replace(t, filepath.Join(dir, version, "ring.json"), record(i+1))
	}
	link(t, "v1", filepath.Join(dir, "..data"))
	link(t, "..data/ring.json", filepath.Join(dir, "ring.json"))
	_, log := newReports()
	w := NewFile(filepath.Join(dir, "ring.json"), "", Options{}, log)
	w.poll = time.Hour
	start(t, w)
	<-w.Ready()
	link(t, "v2", filepath.Join(dir, "..data"))
	awaitEpoch(t, w, 2)
}

// The file lies, by a link, in a folder of which no notice comes.
func TestFilePolls(t *testing.T) {
	target, path := filepath.Join(t.TempDir(), "ring.json"), filepath.Join(t.TempDir(), "ring.json")
	replace(t, target, record(1))
	link(t, target, path)
	_, log := newReports()
	w := NewFile(path, "", Options{}, log)
	w.poll = time.Millisecond
	start(t, w)
	<-w.Ready()
	replace(t, target, record(2))
	awaitEpoch(t, w, 2)
}

func TestFileRefusesABrokenStart(t *testing.T) {
	for name, c := range map[string]struct{ ring, hot, want string }{
		"no ring file":  {"", `{}`, "no such file"},
		"broken ring":   {`{"epoch": 1}`, `{}`, "ring.json:1: shards: there are no shards"},
		"no hot file":   {record(1), "", "no such file"},
		"broken hot":    {record(1), `[]`, "hot.json:1: a list does not belong here"},
		"both, in turn": {`{}`, `[]`, "ring.json:1: epoch"},
	} {
		t.Run(name, func(t *testing.T) {
			ring, hot := filepath.Join(t.TempDir(), "ring.json"), filepath.Join(t.TempDir(), "hot.json")
			if c.ring != "" {
				replace(t, ring, c.ring)
			}
			if c.hot != "" {
				replace(t, hot, c.hot)
			}
			reports, log := newReports()
			w := NewFile(ring, hot, Options{}, log)
			err := w.Run(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if w.View() != nil {
				t.Error("there is a view")
			}
			reports.none(t, "trouble") // returned, so not logged
		})
	}
}

// replace renames a whole new file over path.
func replace(t *testing.T, path, content string) {
	t.Helper()
	whole := path + ".new"
	if err := os.WriteFile(whole, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, path); err != nil {
		t.Fatal(err)
	}
}

// link puts a symbolic link at path, in place of the one there.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
