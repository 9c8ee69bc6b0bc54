//go:build integration

package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/obs"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// TestCheckerCatches tests the test: a worker that leaves one thing out must leave stale copies, of that kind alone, and the checker
// must find them. A worker that leaves nothing out must leave none, under the same writes and the same late reader.
func TestCheckerCatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2*time.Second, 2, 2, harness.Postgres)
	w.pipeline.Feed()
	w.pipeline.AwaitFeeding(w.dbs...)
	replica := w.ring.Load().record.Shards[0].Replicas[0].Addr

	for i, test := range []struct {
		name   string
		worker func(*app.Worker)
		caught func(c *catch, s stale) bool // whether a copy is what the worker left out
		copies int                          // that must be stale
	}{
		{name: "nothing_left_out"},
		{
			name: "replica",
			worker: func(a *app.Worker) {
				a.Wrap = harness.LeaveOut(func(_ sink.Lane, c sink.Copy, _ int) bool { return c.Node == replica })
			},
			caught: func(_ *catch, s stale) bool { return s.node == replica },
			copies: 21,
		},
		{
			name: "hot",
			worker: func(a *app.Worker) {
				a.Wrap = harness.LeaveOut(func(_ sink.Lane, c sink.Copy, _ int) bool { return strings.Contains(c.Key, "#") })
			},
			caught: func(_ *catch, s stale) bool { return strings.Contains(s.name, "#") },
			copies: 32,
		},
		{
			name:   "before_image",
			worker: func(a *app.Worker) { a.WrapMapper = func(m mapping.Mapper) mapping.Mapper { return afterOnly{m} } },
			caught: func(c *catch, s stale) bool { return s.want == none && (s.name == c.oldEmail || s.name == c.oldItem) },
			copies: 4,
		},
		{
			name: "second_delete",
			worker: func(a *app.Worker) {
				a.Wrap = harness.LeaveOut(func(_ sink.Lane, _ sink.Copy, round int) bool { return round > 1 })
			},
			caught: func(c *catch, s stale) bool { return s.node == c.late.node.Addr && s.name == c.late.name },
			copies: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &catch{world: w, t: t, first: 1 + 12*i}
			c.play(test.worker)
			_, present, found := w.check()
			if len(found) != test.copies {
				t.Errorf("the checker found %d stale copies among %d, want %d", len(found), present, test.copies)
			}
			if test.caught == nil {
				w.report(found)
			}
			for _, s := range found {
				if test.caught != nil && !test.caught(c, s) {
					t.Errorf("a stale copy that was not left out: %s", s)
				}
			}
			c.clean(found)
		})
	}
}

// catch is one play of TestCheckerCatches, on rows of its own.
type catch struct {
	*world
	t     *testing.T
	first int // row

	oldEmail, oldItem string
	late              fill
}

// play fills every copy of some keys, commits a change of each, and lets one reader fill what it read before the commit.
func (c *catch) play(worker func(*app.Worker)) {
	s, id := c.shops[0], c.first
	hotID := (id + hotStep - 1) / hotStep * hotStep // by the registry
	banner := 1 + id/hotStep
	c.oldEmail, c.oldItem = s.emailKey(strings.ToLower(email(id))), s.itemKey("a", 1+id/hotStep)
	s.Do(c.t,
		fmt.Sprintf(`INSERT INTO users (id, email, name, ver) VALUES (%d, '%s', 'n', 1), (%d, '%s', 'n', 1)`, id, email(id), hotID, email(hotID)),
		fmt.Sprintf(`INSERT INTO items (org, id, label, ver) VALUES ('a', %d, 'l', 1)`, 1+id/hotStep),
		fmt.Sprintf(`INSERT INTO banners (id, text, ver) VALUES (%d, 't', 1)`, banner))
	c.pipeline.AwaitFed(c.dbs...)
	stop := c.run(worker)
	c.pipeline.AwaitDelivered()

	written := map[string]bool{c.oldEmail: true, c.oldItem: true, s.userKey(id): true, s.userKey(hotID): true, s.bannerKey(banner): true}
	for _, k := range s.keys {
		if written[k.text] {
			c.fillAll(k)
		}
		if k.text == s.userKey(id) {
			c.late = c.readEarly(k)
		}
	}
	s.Do(c.t,
		fmt.Sprintf(`UPDATE users SET email = '%s', ver = 2 WHERE id = %d`, email(id+1), id),
		fmt.Sprintf(`UPDATE users SET ver = 2 WHERE id = %d`, hotID),
		fmt.Sprintf(`UPDATE items SET org = 'b', ver = 2 WHERE id = %d`, 1+id/hotStep),
		fmt.Sprintf(`UPDATE banners SET ver = 2 WHERE id = %d`, banner))
	c.fillLate()
	c.pipeline.AwaitFed(c.dbs...)
	c.pipeline.AwaitDelivered()
	stop()
}

// fillAll puts what the row renders into every copy.
func (c *catch) fillAll(k *key) {
	c.t.Helper()
	for _, name := range k.names() {
		for _, addr := range c.ring.Load().owners(name) {
			f := fill{reader: "the warmer", key: k, name: name, node: c.nodes[addr], from: time.Now()}
			var err error
			if f.value, err = k.render(c.t.Context()); err == nil {
				err = c.fill(f)
			}
			if err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// readEarly is a reader that read the row and has not filled yet.
func (c *catch) readEarly(k *key) fill {
	c.t.Helper()
	f := fill{reader: "the late reader", key: k, name: k.text, node: c.nodes[c.ring.Load().owners(k.text)[0]], from: time.Now()}
	var err error
	if f.value, err = k.render(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return f
}

// fillLate fills as soon as the first delete was seen, which is within settle on any machine that can run this test.
func (c *catch) fillLate() {
	c.t.Helper()
	harness.Await(c.t, "the first delete of "+c.late.name, func() (bool, string) {
		hit, err := c.late.node.Get(c.late.name)
		return err == nil && !hit.Found, fmt.Sprint(hit, err)
	})
	if err := c.fill(c.late); err != nil {
		c.t.Fatal(err)
	}
	if c.stats.late.Load() > 0 {
		c.t.Fatalf("the late reader took %s: the machine is too busy for a reader that keeps to settle", time.Since(c.late.from))
	}
}

// clean removes what was found, so that the next play begins without.
func (c *catch) clean(found []stale) {
	for _, s := range found {
		if err := c.nodes[s.node].Delete(s.name); err != nil {
			c.t.Error(err)
		}
	}
}

// run runs a worker in this process. stop ends it.
func (c *catch) run(change func(*app.Worker)) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	a := &app.Worker{
		Config: c.pipeline.Config, Registry: obs.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(a)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
}

// afterOnly maps the after image alone.
type afterOnly struct{ mapping.Mapper }

func (m afterOnly) Keys(c *cdc.RowChange, r *mapping.Result) {
	after := *c
	after.Before = nil
	m.Mapper.Keys(&after, r)
}
