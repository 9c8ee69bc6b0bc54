//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

// TestMainJob: a committed change deletes all copies, through restarts and kills, on each kind of database.
func TestMainJob(t *testing.T) {
	for _, kind := range harness.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			j := &job{world: newWorld(t, 300*time.Millisecond, 4, 4, kind), t: t}
			j.s = j.shops[0]
			j.feeder, j.worker = j.pipeline.Feed(), j.pipeline.Work()
			j.pipeline.AwaitFeeding(j.dbs...)
			j.s.Do(t, fmt.Sprintf(`INSERT INTO users (id, email, name, ver) VALUES (%d, '%s', 'n', 0)`, hotStep, email(hotStep)))
			j.delivered()

			for _, step := range []struct {
				name string
				test func(*job)
			}{
				{"a change deletes every copy", (*job).deletesEveryCopy},
				{"SIGTERM of a worker loses nothing", (*job).terminatesWorker},
				{"a feeder goes on where it was", (*job).restartsFeeder},
				{"E2 a feeder killed inside a transaction loses nothing", (*job).killsFeederInside},
			} {
				if !t.Run(step.name, func(t *testing.T) {
					j.t, j.world.t = t, t
					step.test(j)
				}) {
					return
				}
			}
		})
	}
}

type job struct {
	*world
	t              *testing.T
	s              *shop
	feeder, worker *harness.Process
}

func (j *job) delivered() {
	j.t.Helper()
	j.pipeline.AwaitFed(j.dbs...)
	j.pipeline.AwaitDelivered()
}

// fillKeys fills every copy of every key of the shop with what its row renders.
func (j *job) fillKeys() {
	j.t.Helper()
	for _, k := range j.s.keys {
		value, err := k.render(j.t.Context())
		if err != nil {
			j.t.Fatal(err)
		}
		for _, name := range k.names() {
			for _, addr := range j.ring.Load().owners(name) {
				if err := j.nodes[addr].Set(name, value); err != nil {
					j.t.Fatal(err)
				}
			}
		}
	}
}

func (j *job) noneStale() {
	j.t.Helper()
	_, _, found := j.check()
	j.report(found)
}

// deletesEveryCopy measures, too: the log says what a machine that is busy with tests makes of it.
func (j *job) deletesEveryCopy() {
	const changes = 30
	k := j.s.keys[slices.IndexFunc(j.s.keys, func(k *key) bool { return k.text == j.s.userKey(hotStep) })]
	var took []time.Duration
	for range changes {
		copies := map[string][]string{} // node -> names
		for _, name := range k.names() {
			for _, addr := range j.ring.Load().owners(name) {
				copies[addr] = append(copies[addr], name)
			}
		}
		for addr, names := range copies {
			if err := j.nodes[addr].SetAll(names, "before"); err != nil {
				j.t.Fatal(err)
			}
		}
		j.s.Do(j.t, fmt.Sprintf(`UPDATE users SET ver = %d WHERE id = %d`, j.s.version.Add(1), hotStep))
		committed := time.Now()
		for addr, names := range copies {
			j.awaitGone(addr, names)
		}
		took = append(took, time.Since(committed))
	}
	slices.Sort(took)
	j.t.Logf("commit to last copy of 18, %d changes: median %s, most %s", changes, took[changes/2], took[changes-1])
}

func (j *job) awaitGone(addr string, names []string) {
	j.t.Helper()
	harness.AwaitQuick(j.t, "copies on "+addr+" to be deleted", func() (bool, string) {
		left, err := j.nodes[addr].Present(names)
		return err == nil && len(left) == 0, fmt.Sprint(left[:min(5, len(left))], err)
	})
}

// terminatesWorker writes while the worker ends and while none runs.
func (j *job) terminatesWorker() {
	j.fillKeys()
	writing, stop := context.WithCancel(j.t.Context())
	defer stop()
	x := &writer{w: j.world, s: j.s, rng: newRand(1)}
	ended := make(chan error, 1)
	go func() { ended <- x.run(writing) }()
	before := j.s.committed.Load()
	more := func(n int64) {
		harness.Await(j.t, "the writer", func() (bool, string) { return j.s.committed.Load() > before+n, "" })
	}
	more(20)
	j.worker.Terminate() // while it waits out the second rounds
	more(40)
	stop()
	if err := errors.Join(<-ended, j.racers.Wait()); err != nil {
		j.t.Fatal(err)
	}
	j.worker = j.pipeline.Work()
	j.delivered()
	j.noneStale()
}

func (j *job) restartsFeeder() {
	j.feeder.Terminate()
	j.fillKeys()
	x := &writer{w: j.world, s: j.s, rng: newRand(2)}
	var err error
	if x.conn, err = j.s.Conn(j.t.Context()); err != nil {
		j.t.Fatal(err)
	}
	defer x.conn.Close()
	for range 50 {
		if err := x.transaction(); err != nil {
			j.t.Fatal(err)
		}
	}
	if err := j.racers.Wait(); err != nil {
		j.t.Fatal(err)
	}
	j.feeder = j.pipeline.Feed()
	j.delivered()
	j.noneStale()
}

// killsFeederInside kills it when a part of one large transaction's records has been written.
func (j *job) killsFeederInside() {
	const rows, early, tries = 10_000, 1_500, 4
	keys := make([]string, rows)
	for i := range keys {
		keys[i] = j.s.userKey(1000 + i)
	}
	for try := 1; ; try++ {
		j.insertRows(rows)
		j.delivered()
		for _, n := range j.nodes {
			if err := n.SetAll(keys, "before"); err != nil {
				j.t.Fatal(err)
			}
		}
		before := j.pipeline.Produced(j.s.Database, "users")
		j.s.Do(j.t, `DELETE FROM users WHERE id >= 1000`)
		harness.AwaitQuick(j.t, "a part of the transaction's records", func() (bool, string) {
			return j.pipeline.Produced(j.s.Database, "users") >= before+early, ""
		})
		j.feeder.Kill()
		written := j.pipeline.Produced(j.s.Database, "users") - before
		j.feeder = j.pipeline.Feed()
		j.delivered()
		j.noneLeft(keys)
		if written < rows {
			j.t.Logf("killed after %d of %d records", written, rows)
			return
		}
		if try == tries {
			j.t.Fatalf("the feeder was %d times too quick to be killed inside the transaction", tries)
		}
	}
}

func (j *job) insertRows(rows int) {
	j.t.Helper()
	for first := 0; first < rows; first += 1000 {
		insert := "INSERT INTO users (id, email, name, ver) VALUES "
		for i := range 1000 {
			if i > 0 {
				insert += ", "
			}
			insert += fmt.Sprintf("(%d, 'bulk@x.test', 'n', 0)", 1000+first+i)
		}
		j.s.Do(j.t, insert)
	}
}

// noneLeft looks for each key on its owners.
func (j *job) noneLeft(keys []string) {
	j.t.Helper()
	mine := map[string][]string{}
	for _, k := range keys {
		for _, addr := range j.ring.Load().owners(k) {
			mine[addr] = append(mine[addr], k)
		}
	}
	for addr, keys := range mine {
		left, err := j.nodes[addr].Present(keys)
		if err != nil {
			j.t.Fatal(err)
		}
		if len(left) > 0 {
			j.t.Errorf("%d of %d keys are left on %s: %v …", len(left), len(keys), addr, left[:min(3, len(left))])
		}
	}
}
