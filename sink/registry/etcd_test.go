//go:build integration

package registry

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"invalidator/sink"
	"invalidator/test/certs"
	"invalidator/test/integration/services"
)

func TestEtcdFollowsTheRing(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	e.put(e.ring, record(1))
	w, _ := e.watch(t)
	first := awaitEpoch(t, w, 1)
	e.put(e.ring, record(2))
	awaitEpoch(t, w, 2)
	if first.Topology.Epoch() != 1 {
		t.Error("the first view was changed")
	}
	confirmed := w.View().Confirmed
	v := await(t, w, "two confirmations", func(v *View) bool { return v.Confirmed.After(confirmed.Add(askEvery)) })
	if age := time.Since(v.Confirmed); age < 0 || age > askTimeout {
		t.Errorf("confirmed %v ago", age)
	}
}

func TestEtcdFollowsHotKeys(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	e.put(e.ring, record(1))
	e.put(e.hot+"feed%3A1", `{"copies": 8, "since": "2026-11-30T10:00:00Z"}`)
	e.put(e.hot+"feed%3A2", `{"copies": "many"}`)
	w, reports := e.watch(t)
	reports.await(t, "feed%3A2")
	v := await(t, w, "feed:1", func(v *View) bool { return v.Hot.Copies("feed:1") == 8 })
	if v.Hot.Len() != 1 {
		t.Errorf("got %d hot keys, want 1", v.Hot.Len())
	}

	e.put(e.hot+"feed%3A2", `{"copies": 4}`)
	reports.await(t, "trouble is over")
	later := await(t, w, "feed:2", func(v *View) bool { return v.Hot.Copies("feed:2") == 4 })
	if later.Hot.Revision() <= v.Hot.Revision() {
		t.Errorf("revision %d after %d", later.Hot.Revision(), v.Hot.Revision())
	}

	e.put(e.hot+"feed%3A2", `{"copies": 0}`) // keeps what it was
	reports.await(t, "copies is 0")
	e.delete(e.hot + "feed%3A1")
	v = await(t, w, "feed:1 gone", func(v *View) bool { return v.Hot.Copies("feed:1") == 0 })
	if v.Hot.Copies("feed:2") != 4 {
		t.Errorf("feed:2 has %d copies, want 4", v.Hot.Copies("feed:2"))
	}
	await(t, w, "a confirmation with a bad entry", func(n *View) bool { return n.Confirmed.After(v.Confirmed) })
}

func TestEtcdKeepsTheLastGoodRing(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	e.put(e.ring, record(7))
	w, reports := e.watch(t)
	awaitEpoch(t, w, 7)
	for _, c := range []struct{ value, report string }{
		{`{"epoch": 8, "shards": []}`, "there are no shards"},
		{`{"epoch": 8, `, "ends in the middle"},
		{record(6), "epoch 6 is older than 7"},
		{"", "was deleted"},
	} {
		if c.value == "" {
			e.delete(e.ring)
		} else {
			e.put(e.ring, c.value)
		}
		reports.await(t, c.report)
		if got := w.View().Topology.Epoch(); got != 7 {
			t.Errorf("%s: got epoch %d, want 7", c.value, got)
		}
	}
	confirmed := w.View().Confirmed
	e.put(e.hot+"a", `{"copies": 2}`) // the rest goes on
	if v := await(t, w, "hot key", func(v *View) bool { return v.Hot.Copies("a") == 2 }); !v.Confirmed.Equal(confirmed) {
		t.Error("a ring that etcd does not hold was confirmed")
	}
	e.put(e.ring, record(9))
	awaitEpoch(t, w, 9)
	reports.await(t, "trouble is over")
	await(t, w, "a confirmation", func(v *View) bool { return v.Confirmed.After(confirmed) })
}

func TestEtcdWaitsForTheFirstGoodRing(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	w, reports := e.watch(t)
	reports.await(t, "holds no ring record")
	e.put(e.ring, `{}`)
	reports.await(t, "the epoch is missing")
	select {
	case <-w.Ready():
		t.Fatal("ready without a ring")
	default:
	}
	e.put(e.ring, record(1))
	<-w.Ready()
	awaitEpoch(t, w, 1)
}

func TestEtcdIsAwaitedAtStart(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	reports, log := newReports()
	w := NewEtcd(EtcdConfig{Endpoints: []string{address}}, Options{}, log)
	start(t, w)
	reports.await(t, "etcd at "+address)
	ownEtcd(t, address).put("/cache/ring", record(3))
	awaitEpoch(t, w, 3)
	reports.none(t, "etcd at "+address) // said once
}

// Cut off, the watcher keeps its view and says so; back, it sees what it missed by the watch.
func TestEtcdIsCutOff(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	line := newLine(t, e.address)
	e.put(e.ring, record(1))
	w, reports := e.watchAt(t, line.address)
	awaitEpoch(t, w, 1)
	line.cut()
	reports.await(t, "etcd at "+line.address)
	if got := w.View().Topology.Epoch(); got != 1 {
		t.Errorf("got epoch %d, want 1", got)
	}
	confirmed := w.View().Confirmed
	e.put(e.ring, record(2))
	e.put(e.hot+"a", `{"copies": 2}`)
	line.mend()
	v := awaitEpoch(t, w, 2)
	v = await(t, w, "hot key", func(v *View) bool { return v.Hot.Copies("a") == 2 })
	await(t, w, "a confirmation", func(n *View) bool { return n.Confirmed.After(confirmed) && !n.Confirmed.Before(v.Confirmed) })
	reports.none(t, "reading everything")
}

// A server that hangs closes nothing: only its silence tells.
func TestEtcdHangs(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t, freeAddress(t))
	e.put(e.ring, record(1))
	w, reports := e.watch(t)
	awaitEpoch(t, w, 1)
	e.signal(syscall.SIGSTOP)
	reports.await(t, "there was no answer")
	hung := time.Now()
	if got := w.View(); got.Topology.Epoch() != 1 || !got.Confirmed.Before(hung.Add(-askTimeout)) {
		t.Errorf("got epoch %d, confirmed %v before the report", got.Topology.Epoch(), hung.Sub(got.Confirmed))
	}
	e.signal(syscall.SIGCONT)
	e.put(e.ring, record(2))
	awaitEpoch(t, w, 2)
	reports.await(t, "trouble is over")
}

// What happened while the watcher was cut off was compacted away: everything is read again, also what was deleted.
func TestEtcdWasCompactedMeanwhile(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t, freeAddress(t))
	line := newLine(t, e.address)
	e.put(e.ring, record(1))
	e.put(e.hot+"gone", `{"copies": 2}`)
	w, reports := e.watchAt(t, line.address)
	await(t, w, "hot key", func(v *View) bool { return v.Hot.Copies("gone") == 2 })
	line.cut()
	reports.await(t, "etcd at "+line.address)
	e.delete(e.hot + "gone")
	e.put(e.ring, record(2))
	e.put(e.hot+"new", `{"copies": 4}`)
	e.compact(e.put(e.ring, record(3)))
	line.mend()
	v := awaitEpoch(t, w, 3)
	if v.Hot.Copies("gone") != 0 || v.Hot.Copies("new") != 4 {
		t.Errorf("gone has %d copies, new %d", v.Hot.Copies("gone"), v.Hot.Copies("new"))
	}
	reports.await(t, "was compacted while the watch was cut off")
	e.put(e.ring, record(4))
	awaitEpoch(t, w, 4)
}

// What came, had more copies for a moment, or left while no worker looked, is seen in etcd's history, from where the sight of others ended;
// also where it comes in one answer.
func TestEtcdHotKeysOfAWhileAgo(t *testing.T) {
	t.Parallel()
	e := sharedEtcd(t)
	e.put(e.ring, record(1))
	seen := e.put(e.hot+"before", `{"copies": 2}`)
	e.put(e.hot+"gone", `{"copies": 4}`)
	e.delete(e.hot + "gone")
	e.put(e.hot+"less", `{"copies": 8}`)
	e.put(e.hot+"less", `{"copies": 3}`)
	_, log := newReports()
	w := NewEtcd(EtcdConfig{Endpoints: []string{e.address}, RingKey: e.ring, HotPrefix: e.hot}, Options{MaxTTL: time.Hour}, log)
	w.Feed(Saved{Hot: map[string]sink.HotEntry{"before": {Copies: 2, Revision: seen, Most: 2}}, HotRevision: seen, HotSeen: seen})
	start(t, w)
	v := await(t, w, "what left", func(v *View) bool { return v.Hot.Copies("gone") == 4 && v.Hot.Copies("less") == 8 })
	if got := fmt.Sprint(maps.Collect(v.Hot.Each)); got != "map[before:2 less:3]" {
		t.Errorf("in the registry are %s", got)
	}
	await(t, w, "a confirmation", func(v *View) bool { return !v.Confirmed.IsZero() })
}

// etcd came back with an older state: the watch waits for a revision that is long to come, and only the question tells.
func TestEtcdWasRestored(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	e := ownEtcd(t, address)
	for epoch := range 20 {
		e.put(e.ring, record(epoch+1))
	}
	w, reports := e.watch(t)
	awaitEpoch(t, w, 20)
	e.stop()
	e = ownEtcd(t, address)
	e.put(e.ring, record(21))
	awaitEpoch(t, w, 21)
	reports.await(t, "did not come by the watch")
}

func TestEtcdSaysThatAPasswordIsWrong(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t, freeAddress(t))
	e.withUser("root", "right")
	reports, log := newReports()
	wrong := NewEtcd(EtcdConfig{Endpoints: []string{e.address}, Username: "root", Password: "wrong"}, Options{}, log)
	start(t, wrong)
	reports.await(t, "authentication failed")

	w := NewEtcd(EtcdConfig{Endpoints: []string{e.address}, Username: "root", Password: "right"}, Options{}, log)
	start(t, w)
	reports.await(t, "holds no ring record")
}

// Over TLS, with a certificate of the right authority, the ring is read; who trusts another, or shows none, is told why it is not.
func TestEtcdOverTLS(t *testing.T) {
	t.Parallel()
	ours, others, dir := certs.New(t), certs.New(t), t.TempDir()
	server := ours.Certify(dir, "server", time.Hour)
	right := ours.Client(ours.Certify(dir, "worker", time.Hour))
	e := ownEtcdOver(t, freeAddress(t), right, "--cert-file", server.Cert, "--key-file", server.Key, "--trusted-ca-file", ours.File, "--client-cert-auth")
	e.put(e.ring, record(1))
	for _, tc := range []struct {
		client *tls.Config
		want   string
	}{
		{others.Client(), "unknown authority"},
		{ours.Client(), "remote error: tls: "},
		{ours.Client(others.Certify(dir, "other", time.Hour)), "remote error: tls: "},
		{ours.Client(ours.Certify(dir, "expired", -time.Hour)), "remote error: tls: "},
	} {
		reports, log := newReports()
		start(t, NewEtcd(EtcdConfig{Endpoints: []string{"https://" + e.address}, RingKey: e.ring, HotPrefix: e.hot, TLS: tc.client}, Options{}, log))
		reports.await(t, tc.want)
	}
	_, log := newReports()
	w := NewEtcd(EtcdConfig{Endpoints: []string{"https://" + e.address}, RingKey: e.ring, HotPrefix: e.hot, TLS: right}, Options{}, log)
	start(t, w)
	awaitEpoch(t, w, 1)
}

func TestEtcdWantsEndpoints(t *testing.T) {
	t.Parallel()
	_, log := newReports()
	if err := NewEtcd(EtcdConfig{}, Options{}, log).Run(context.Background()); err == nil {
		t.Error("no error")
	}
}

// etcd is a server with keys that are this test's own.
type etcd struct {
	t         *testing.T
	address   string
	client    *clientv3.Client
	ring, hot string
	stop      func()
	signal    func(os.Signal)
}

func sharedEtcd(t *testing.T) *etcd {
	t.Helper()
	root := "/test/" + rand.Text()
	e := newEtcd(t, services.Addr("ETCD"), root, nil)
	t.Cleanup(func() {
		if _, err := e.client.Delete(context.Background(), root, clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func newEtcd(t *testing.T, address, root string, secure *tls.Config) *etcd {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, TLS: secure, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &etcd{t: t, address: address, client: client, ring: root + "/ring", hot: root + "/hot/"}
}

// ownEtcd starts a server that ends with the test.
func ownEtcd(t *testing.T, address string) *etcd {
	t.Helper()
	return ownEtcdOver(t, address, nil)
}

// ownEtcdOver is ownEtcd over TLS, where it is not nil: as the test's own client speaks it.
func ownEtcdOver(t *testing.T, address string, secure *tls.Config, args ...string) *etcd {
	t.Helper()
	peer, at := "http://"+freeAddress(t), "http://"+address
	if secure != nil {
		at = "https://" + address
	}
	cmd := exec.Command("etcd", append(args, "--name", "one", "--data-dir", t.TempDir(), "--logger", "zap", "--log-level", "error",
		"--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting etcd: %v (install etcd-server)", err)
	}
	e := newEtcd(t, address, "/cache", secure)
	e.signal = func(s os.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Errorf("sending %v to etcd: %v", s, err)
		}
	}
	e.stop = sync.OnceFunc(func() {
		e.signal(syscall.SIGCONT)
		e.signal(syscall.SIGTERM)
		cmd.Wait() //nolint:errcheck // a server that was told to end says that it was
		if t.Failed() {
			t.Logf("etcd at %s said:\n%s", address, said.String())
		}
	})
	t.Cleanup(e.stop)
	e.do(func(ctx context.Context) error { // until it answers
		for {
			if _, err := e.client.Get(ctx, "/"); err == nil || ctx.Err() != nil {
				return err
			}
		}
	})
	return e
}

// watch runs a watcher of e's keys.
func (e *etcd) watch(t *testing.T) (*Etcd, reports) { return e.watchAt(t, e.address) }

func (e *etcd) watchAt(t *testing.T, address string) (*Etcd, reports) {
	t.Helper()
	reports, log := newReports()
	w := NewEtcd(EtcdConfig{Endpoints: []string{address}, RingKey: e.ring, HotPrefix: e.hot}, Options{}, log)
	start(t, w)
	return w, reports
}

func (e *etcd) put(key, value string) (revision int64) {
	e.t.Helper()
	e.do(func(ctx context.Context) error {
		resp, err := e.client.Put(ctx, key, value)
		if err == nil {
			revision = resp.Header.Revision
		}
		return err
	})
	return revision
}

func (e *etcd) delete(key string) {
	e.t.Helper()
	e.do(func(ctx context.Context) error {
		_, err := e.client.Delete(ctx, key)
		return err
	})
}

func (e *etcd) compact(revision int64) {
	e.t.Helper()
	e.do(func(ctx context.Context) error {
		_, err := e.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
		return err
	})
}

func (e *etcd) withUser(name, password string) {
	e.t.Helper()
	e.do(func(ctx context.Context) error {
		_, add := e.client.UserAdd(ctx, name, password)
		_, grant := e.client.UserGrantRole(ctx, name, "root")
		_, enable := e.client.AuthEnable(ctx)
		return errors.Join(add, grant, enable)
	})
}

func (e *etcd) do(f func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f(ctx); err != nil {
		e.t.Fatalf("etcd at %s: %v", e.address, err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// line is a connection to a server that can be cut.
type line struct {
	t               *testing.T
	address, target string

	mu    sync.Mutex
	open  map[net.Conn]bool // guarded by mu, as is l
	l     net.Listener
	ended sync.WaitGroup
}

func newLine(t *testing.T, target string) *line {
	ln := &line{t: t, address: freeAddress(t), target: target}
	ln.mend()
	t.Cleanup(ln.cut)
	return ln
}

func (ln *line) mend() {
	l, err := net.Listen("tcp", ln.address)
	if err != nil {
		ln.t.Fatal(err)
	}
	ln.mu.Lock()
	ln.l, ln.open = l, make(map[net.Conn]bool)
	ln.mu.Unlock()
	ln.ended.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			ln.join(in)
		}
	})
}

func (ln *line) join(in net.Conn) {
	out, err := net.Dial("tcp", ln.target)
	if err != nil {
		in.Close()
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.open == nil {
		in.Close()
		out.Close()
		return
	}
	ln.open[in], ln.open[out] = true, true
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		ln.ended.Go(func() {
			io.Copy(pair[0], pair[1]) //nolint:errcheck // it ends when either side does
			pair[0].Close()
		})
	}
}

func (ln *line) cut() {
	ln.mu.Lock()
	ln.l.Close()
	for c := range ln.open {
		c.Close()
	}
	ln.open = nil
	ln.mu.Unlock()
	ln.ended.Wait()
}
