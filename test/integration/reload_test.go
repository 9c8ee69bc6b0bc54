//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// stage is a while in which all processes have one set in force: rows (from, until] are committed and mapped in it, and lose these keys.
type stage struct {
	keys        string
	from, until int
}

// TestReloadUnderLoad: rows flow while the mapping files are replaced, as a ConfigMap is, by more templates, by a broken file and by a
// mended one. Every row loses the keys of one set, whole; a row that is committed when all workers have the new set loses the new keys.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	r := newReload(t)
	r.swap("keys: ['a:{id}']", "keys: ['b:{id}']")
	workers := []*harness.Process{r.p.Work(), r.p.Work()}
	all := append(workers, r.p.Feed())
	r.p.AwaitFeeding(r.db)
	r.db.Do(t, "INSERT INTO rows_ VALUES (0)") // makes the topic, which the workers then have to find
	r.p.AwaitFed(r.db)
	r.p.AwaitDelivered()
	first := r.fingerprint(len(all))
	r.write()

	stages := []stage{r.flow("a b")}
	r.swap("keys: ['a:{id}', 'a:x:{id}', 'a:y:{id}']", "keys: ['b:{id}']")
	r.awaitLogs(all, "mappings reloaded", 1)
	stages = append(stages, r.flow("a a:x a:y b"))
	r.swap("keys: ['a:{id}', 'b:{id}']", "keys: ['b:{id}', 'b:x:{id}']") // a.yaml has a key of b's pool
	r.awaitLogs(all, "mappings reloaded", 2)
	r.awaitLogs(all, "a mapping file fails: its last good form stays in force", 1)
	stages = append(stages, r.flow("a a:x a:y b b:x"))
	r.swap("keys: ['a:{id}', 'a:z:{id}']", "keys: ['b:{id}', 'b:x:{id}']")
	r.awaitLogs(all, "mappings reloaded", 3)
	r.awaitLogs(all, "a mapping file fails no more", 1)
	stages = append(stages, r.flow("a a:z b b:x"))
	for _, p := range all {
		p.Hangup()
	}
	r.awaitLogs(all, "mappings read on SIGHUP: nothing to change", 1)
	r.stop()
	r.p.AwaitFed(r.db)
	r.p.AwaitDelivered()
	stages[3].until = r.written

	for _, n := range r.nodes {
		cached, at := r.present(n), 0
		for id := 1; id <= r.written; id++ {
			for id > stages[at].until {
				at++
			}
			var lost []string
			for _, k := range keysOf(id) {
				if !cached[k] {
					lost = append(lost, strings.TrimSuffix(k, fmt.Sprintf(":%d", id)))
				}
			}
			got := strings.Join(lost, " ")
			if between := id <= stages[at].from && at > 0; got != stages[at].keys && !(between && got == stages[at-1].keys) {
				t.Errorf("node %s, row %d, of stage %d %+v, lost %s", n.Addr, id, at, stages[at], got)
			}
		}
	}
	t.Logf("%d rows: %+v", r.written, stages)
	if now := r.fingerprint(len(all)); now == first {
		t.Errorf("the fleet shows the fingerprint of its first set, %s", now)
	}
	for _, p := range all {
		p.Terminate()
	}
	r.fingerprint(0)
}

type reload struct {
	t       *testing.T
	p       *harness.Pipeline
	db      *harness.Database
	nodes   []*harness.Node
	swaps   int
	rows    chan int // the row that was committed last, to whoever asks
	stop    func()   // ends the writer
	written int      // the last row, when the writer has ended
}

func newReload(t *testing.T) *reload {
	r := &reload{t: t, db: harness.NewDatabase(t, harness.MariaDB), nodes: harness.StartNodes(t, 2), rows: make(chan int)}
	r.db.Do(t, "CREATE TABLE rows_ (id BIGINT PRIMARY KEY)")
	r.p = harness.New(t, harness.Options{Databases: []*harness.Database{r.db}, Record: sink.Record{Shards: shards(r.nodes)}, Settle: 200 * time.Millisecond})
	for _, team := range []string{"a", "b"} {
		r.link(filepath.Join("..data", team+".yaml"), team+".yaml")
	}
	return r
}

// swap puts both teams' files in the folder at one stroke, as a kubelet does.
func (r *reload) swap(a, b string) {
	r.t.Helper()
	r.swaps++
	dir := fmt.Sprintf("..v%d", r.swaps)
	if err := os.Mkdir(filepath.Join(r.p.Dir, "mappings.d", dir), 0o755); err != nil {
		r.t.Fatal(err)
	}
	for team, keys := range map[string]string{"a": a, "b": b} {
		text := fmt.Sprintf("version: 1\nteam: %s\npools: [%[1]s]\nmappings:\n  - name: rows\n    table: %s.rows_\n    %s\n", team, r.db.Schema, keys)
		if err := os.WriteFile(filepath.Join(r.p.Dir, "mappings.d", dir, team+".yaml"), []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.link(dir, "..data")
}

func (r *reload) link(to, name string) {
	r.t.Helper()
	at := filepath.Join(r.p.Dir, "mappings.d", name)
	if err := errors.Join(os.Symlink(to, at+"_tmp"), os.Rename(at+"_tmp", at)); err != nil {
		r.t.Fatal(err)
	}
}

// keysOf are those that any of the sets derives from a row.
func keysOf(id int) []string {
	var out []string
	for _, format := range []string{"a:%d", "a:x:%d", "a:y:%d", "a:z:%d", "b:%d", "b:x:%d"} {
		out = append(out, fmt.Sprintf(format, id))
	}
	return out
}

// write commits rows one after another until stop. All keys of a row are in the cache before it is committed.
func (r *reload) write() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case r.rows <- r.written:
			default:
			}
			for _, n := range r.nodes {
				if err := n.SetAll(keysOf(r.written+1), "old"); err != nil {
					done <- err
					return
				}
			}
			if _, err := r.db.Exec("INSERT INTO rows_ VALUES (?)", r.written+1); err != nil {
				done <- err
				return
			}
			r.written++
		}
	}()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Fatalf("writing rows: %v", err)
		}
	}
	r.t.Cleanup(cancel)
}

// flow waits until 300 rows more are committed, and all rows until then mapped: they have lost a key that every set has.
func (r *reload) flow(keys string) stage {
	r.t.Helper()
	s := stage{keys: keys, from: <-r.rows}
	for s.until = s.from; s.until < s.from+300; s.until = <-r.rows {
	}
	var every []string
	for id := 1; id <= s.until; id++ {
		every = append(every, fmt.Sprintf("a:%d", id), fmt.Sprintf("b:%d", id))
	}
	for _, n := range r.nodes {
		harness.Await(r.t, "the rows to be mapped", func() (bool, string) {
			left, err := n.Present(every)
			return err == nil && len(left) == 0, fmt.Sprintf("%d keys are left, %v", len(left), err)
		})
	}
	return s
}

func (r *reload) awaitLogs(ps []*harness.Process, part string, n int) {
	r.t.Helper()
	for _, p := range ps {
		harness.Await(r.t, fmt.Sprintf("the log to say %q %d times", part, n), func() (bool, string) {
			return strings.Count(p.Log(), part) >= n, p.Log()
		})
		if got := strings.Count(p.Log(), part); got != n {
			r.t.Errorf("the log says %q %d times, want %d", part, got, n)
		}
	}
}

func (r *reload) present(n *harness.Node) map[string]bool {
	r.t.Helper()
	var keys []string
	for id := 1; id <= r.written; id++ {
		keys = append(keys, keysOf(id)...)
	}
	found, err := n.Present(keys)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, k := range found {
		out[k] = true
	}
	return out
}

// fingerprint waits until `invalidator status` shows so many processes, with one fingerprint, and finds nothing wrong with them; it returns the fingerprint.
func (r *reload) fingerprint(processes int) (one string) {
	r.t.Helper()
	harness.Await(r.t, fmt.Sprintf("%d processes to show one fingerprint", processes), func() (bool, string) {
		out, err := exec.Command(harness.Binary(r.t), "status", "--config", r.p.File, "--json").Output() // it fails without a worker
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			r.t.Fatal(err)
		}
		n, seen := 0, map[string]bool{}
		for line := range bytes.Lines(out) {
			var x struct {
				Process  string
				Lost     bool
				Mappings struct{ Fingerprint string }
			}
			if err := json.Unmarshal(line, &x); err != nil {
				r.t.Fatalf("%s: %v", line, err)
			}
			if x.Process != "" && !x.Lost {
				one = x.Mappings.Fingerprint
				n, seen[one] = n+1, true
			}
		}
		return n == processes && len(seen) <= 1 && (err == nil) == (n > 0), string(out)
	})
	return one
}
