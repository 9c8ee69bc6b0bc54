//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

// TestKillBetweenRounds: a worker that is killed when the first round of a change is acknowledged, and the second is not due
// yet, has not committed the change: its successor deletes what a reader filled in between.
func TestKillBetweenRounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5*time.Second, 2, 2, harness.MariaDB)
	c := &catch{world: w, t: t}
	s := w.shops[0]
	w.pipeline.Feed()
	worker := w.pipeline.Work()
	w.pipeline.AwaitFeeding(w.dbs...)
	s.Do(t, fmt.Sprintf(`INSERT INTO users (id, email, name, ver) VALUES (1, '%s', 'n', 1)`, email(1)))
	w.pipeline.AwaitFed(w.dbs...)
	w.pipeline.AwaitDelivered()

	k := s.byText[s.userKey(1)]
	c.fillAll(k)
	c.late = c.readEarly(k)
	s.Do(t, `UPDATE users SET ver = 2 WHERE id = 1`)
	c.fillLate()
	pause(t.Context(), 2*time.Second) // workers commit every second
	worker.Kill()
	if hit, err := c.late.node.Get(k.text); err != nil || !hit.Found {
		t.Fatalf("the second round came before the kill (%v, %v): the machine is too busy", hit, err)
	}
	w.pipeline.Work()
	w.pipeline.AwaitDelivered()
	_, _, found := w.check()
	w.report(found)
}
