package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// askEvery is how often etcd is asked whether anything is newer than what the watches brought.
	askEvery = time.Second
	// askTimeout bounds one question to etcd.
	askTimeout = 2 * time.Second
	// missedAfter is how long a change that etcd has may take to come by a watch before everything is read again.
	missedAfter = 5 * time.Second
	// retryDelay is the pause before etcd is tried again.
	retryDelay = time.Second
	// aliveTime is how long a connection may be silent before it is pinged, and how long the answer may take: a watch on a
	// connection that was cut without a word would wait for ever.
	aliveTime = 3 * time.Second
)

// errReadAgain ends a session whose watches no longer tell all.
var errReadAgain = errors.New("the watch on etcd has a gap")

// EtcdConfig says where the registry is.
type EtcdConfig struct {
	Endpoints   []string
	RingKey     string        // "" = /cache/ring
	HotPrefix   string        // "" = /cache/hot/
	DialTimeout time.Duration // bounds signing in; 0 = 5 s
	Username    string        // "" = without a user
	Password    string
	TLS         *tls.Config // nil = without TLS
}

// Etcd watches the ring record and the hot keys in etcd.
//
// Two watches bring each change at once. Beside them, a linearizable read asks each second what the newest changes are:
// when the watches have brought those, the view is confirmed as of the moment before the question. Watch progress would
// not do: up to 3.4.24 and 3.5.7 etcd answers a progress request ahead of events that it has yet to send.
type Etcd struct {
	*board
	cfg      EtcdConfig
	log      *slog.Logger
	troubles *troubles
	state    etcdState // Run's alone
	hotSeen  int64     // Run's alone: every change of the hot keys up to this revision was applied
}

func (c EtcdConfig) withDefaults() EtcdConfig {
	c.RingKey = cmp.Or(c.RingKey, "/cache/ring")
	c.HotPrefix = cmp.Or(c.HotPrefix, "/cache/hot/")
	c.DialTimeout = cmp.Or(c.DialTimeout, 5*time.Second)
	return c
}

// NewEtcd watches cfg's keys.
func NewEtcd(cfg EtcdConfig, opts Options, log *slog.Logger) *Etcd {
	cfg = cfg.withDefaults()
	t := newTroubles(log)
	b := newBoard(opts, log)
	return &Etcd{board: b, cfg: cfg, log: log, troubles: t, state: newEtcdState(cfg, b, t)}
}

// Run implements Watcher.
func (w *Etcd) Run(ctx context.Context) error {
	if len(w.cfg.Endpoints) == 0 {
		return errors.New("watching the ring: there are no etcd endpoints (name at least one, or a ring file)")
	}
	for ctx.Err() == nil {
		err := w.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		w.unreachable(err)
		pause(ctx, retryDelay)
	}
	return nil
}

// connect follows the registry over one client until that fails.
func (w *Etcd) connect(ctx context.Context) error {
	client, err := w.cfg.client(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer client.Close()
	for {
		if err := w.session(ctx, client); !errors.Is(err, errReadAgain) {
			return err
		}
	}
}

// session reads everything at one revision, then follows what comes after it.
func (w *Etcd) session(ctx context.Context, client *clientv3.Client) error {
	began := time.Now()
	revision, err := w.read(ctx, client)
	if err != nil {
		return err
	}
	w.reachable()
	w.state.confirm(began, revision)
	w.put()

	// Of the hot keys every change counts, also one that was undone before we read: the watch begins where our own sight, and that of
	// other workers, ended.
	from := max(w.hotSeen, w.fedTo())
	if from == 0 || from > revision { // nobody saw anything, or an etcd that was restored
		from = revision
	}
	w.hotSeen = from

	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	ring, hot := make(chan clientv3.WatchResponse), make(chan clientv3.WatchResponse)
	watches.Go(func() { watch(ctx, client, w.cfg.RingKey, revision+1, ring) })
	watches.Go(func() { watch(ctx, client, w.cfg.HotPrefix, from+1, hot, clientv3.WithPrefix()) })
	return w.follow(ctx, client, ring, hot)
}

// follow applies what the watches bring, and asks etcd for confirmation, until the watches have a gap or ctx ends.
func (w *Etcd) follow(ctx context.Context, client *clientv3.Client, ring, hot <-chan clientv3.WatchResponse) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var asked *question  // not confirmed yet
	var waited time.Time // since when none was confirmed
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp := <-ring:
			if err := w.take(resp, w.state.putRing); err != nil {
				return err
			}
		case resp := <-hot:
			if n := len(resp.Events); n > 0 {
				w.hotSeen = resp.Events[n-1].Kv.ModRevision
			} else if resp.CompactRevision != 0 {
				w.hotSeen = resp.CompactRevision - 1 // the next that there is
			}
			if err := w.take(resp, w.state.putHot); err != nil {
				return err
			}
		case <-tick.C:
			q, err := w.ask(ctx, client)
			if err != nil {
				w.unreachable(err)
				continue
			}
			w.reachable()
			if asked == nil {
				waited = q.began
			}
			asked = q
		}
		if asked == nil {
			continue
		}
		if w.state.newest() == asked.newest {
			w.state.confirm(asked.began, asked.revision)
			w.put()
			asked = nil
		} else if time.Since(waited) > missedAfter {
			w.log.Warn("registry: a change did not come by the watch, reading everything", "after", missedAfter)
			return errReadAgain
		}
	}
}

// take applies one answer of a watch.
func (w *Etcd) take(resp clientv3.WatchResponse, apply func([]*clientv3.Event)) error {
	if resp.CompactRevision != 0 {
		w.log.Warn("registry: etcd was compacted while the watch was cut off, reading everything; records in between were not seen",
			"revision", resp.CompactRevision)
		return errReadAgain
	}
	if err := resp.Err(); err != nil {
		w.unreachable(fmt.Errorf("watching: %w", err)) // watch tries again
		return nil
	}
	if len(resp.Events) > 0 {
		apply(resp.Events)
		w.put()
	}
	return nil
}

// watch sends everything that a watch on key brings from revision next on. It begins again where it was broken off, since
// every record counts, until ctx ends or etcd no longer has that revision.
func watch(ctx context.Context, client *clientv3.Client, key string, next int64, out chan<- clientv3.WatchResponse, opts ...clientv3.OpOption) {
	for ctx.Err() == nil {
		answers := client.Watch(clientv3.WithRequireLeader(ctx), key, append(opts, clientv3.WithRev(next))...)
		for resp := range answers {
			if n := len(resp.Events); n > 0 {
				next = resp.Events[n-1].Kv.ModRevision + 1
			}
			select {
			case out <- resp:
			case <-ctx.Done():
				return
			}
			if resp.CompactRevision != 0 {
				return
			}
		}
		pause(ctx, retryDelay)
	}
}

// read replaces the state by what etcd holds, all at the revision that it returns.
func (w *Etcd) read(ctx context.Context, client *clientv3.Client) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := client.Txn(ctx).Then(clientv3.OpGet(w.cfg.RingKey), clientv3.OpGet(w.cfg.HotPrefix, clientv3.WithPrefix())).Commit()
	if err != nil {
		return 0, fmt.Errorf("reading the registry: %w", err)
	}
	w.state.replace(resp.Header.Revision, resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs)
	return resp.Header.Revision, nil
}

// question is what etcd held at a moment not before began.
type question struct {
	began    time.Time
	revision int64 // of all of etcd
	newest   newest
}

// ask is a linearizable read, small however many hot keys there are.
func (w *Etcd) ask(ctx context.Context, client *clientv3.Client) (*question, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q := &question{began: time.Now()}
	resp, err := client.Txn(ctx).Then(
		clientv3.OpGet(w.cfg.RingKey, clientv3.WithKeysOnly()),
		clientv3.OpGet(w.cfg.HotPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1)),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("asking for the newest change: %w", err)
	}
	q.revision = resp.Header.Revision
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		q.newest.ring = kv.ModRevision
	}
	hot := resp.Responses[1].GetResponseRange()
	q.newest.hotCount = hot.Count
	for _, kv := range hot.Kvs {
		q.newest.hot = kv.ModRevision
	}
	return q, nil
}

func (w *Etcd) unreachable(err error) {
	if _, known := w.troubles.open["etcd"]; known {
		return
	}
	hint := "it is tried again every " + retryDelay.String()
	if errors.Is(err, context.DeadlineExceeded) { // the client connects behind the scenes and does not say what it met there
		hint = "there was no answer: check that etcd runs, and the endpoints, TLS and firewalls; " + hint
		if met := knock(w.cfg.Endpoints, w.cfg.TLS); met != nil {
			err = met
		}
	}
	w.troubles.tell("etcd", fmt.Errorf("etcd at %s: %w (%s)", strings.Join(w.cfg.Endpoints, ", "), err, hint))
}

func (w *Etcd) reachable() { w.troubles.tell("etcd", nil) }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
