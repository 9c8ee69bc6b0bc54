//go:build integration && chaos

package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// storm feeds databases while their writers commit and roll back, makes faults, and then compares the topics with the
// writers' books.
type storm struct {
	t       *testing.T
	rng     *rand.Rand
	writers []*writer
	dbs     []*harness.Database
	p       *harness.Pipeline
	feeder  *harness.Process
	topics  *topics
}

func newStorm(t *testing.T, kinds ...harness.Kind) *storm {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &storm{t: t, rng: rand.New(rand.NewPCG(seed, 0))}
	for i, kind := range kinds {
		w := newWriter(t, kind, seed+uint64(i))
		s.writers, s.dbs = append(s.writers, w), append(s.dbs, w.Database)
	}
	return s
}

// begin starts the feeder; proxies stand before the databases by then.
func (s *storm) begin() {
	s.p = pipeline(s.t, s.dbs...)
	s.feeder = s.p.Feed()
	s.p.AwaitFeeding(s.dbs...)
	s.topics = readTopics(s.t, s.p)
}

// blow makes n faults, each while every writer makes its transactions and once some of their records came.
func (s *storm) blow(n int, fault func()) {
	for i := range n {
		var writing errgroup.Group
		for _, w := range s.writers {
			writing.Go(func() error { return w.run(each) })
		}
		written := make(chan error, 1)
		go func() { written <- writing.Wait() }()
		from, more := s.topics.count(), s.rng.IntN(len(s.writers)*large)
		harness.Await(s.t, fmt.Sprintf("%d more records before fault %d", more, i+1), func() (bool, string) {
			n := s.topics.count() - from
			return n >= more || len(written) > 0, fmt.Sprintf("%d of them", n) // the fault before may have undone the largest transaction
		})
		fault()
		if err := <-written; err != nil {
			s.t.Fatal(err)
		}
	}
	s.settle(s.feeder)
}

// settle ends the feeders when all is fed, and compares.
func (s *storm) settle(feeders ...*harness.Process) {
	s.p.AwaitFed(s.dbs...)
	for _, f := range feeders {
		f.Terminate()
	}
	read := books(s.t, s.topics)
	for _, w := range s.writers {
		s.t.Run(string(w.Kind), func(t *testing.T) { w.compare(t, read[s.p.Source(w.Kind)]) })
	}
}

// dev runs a command of ./dev.
func dev(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(services.Root(), "dev"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("./dev %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// pid is that of a service that ./dev started without a container.
func pid(t *testing.T, service string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(services.Root(), ".dev", "run", service+".pid"))
	if err != nil {
		t.Fatalf("finding %s: %v", service, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func send(t *testing.T, service string, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid(t, service), signal); err != nil {
		t.Fatalf("sending %s to %s: %v", signal, service, err)
	}
}

// crash ends a service with SIGKILL and starts it again.
func crash(t *testing.T, service string) {
	gone := pid(t, service)
	send(t, service, syscall.SIGKILL)
	harness.Await(t, service+" to be gone", func() (bool, string) {
		err := syscall.Kill(gone, 0)
		return errors.Is(err, syscall.ESRCH), fmt.Sprint(err)
	})
	dev(t, "up", service)
}

// freeze stops a service for a while as a cut network would: connections stand, and nothing answers.
func freeze(t *testing.T, service string, d time.Duration) {
	send(t, service, syscall.SIGSTOP)
	<-time.After(d)
	send(t, service, syscall.SIGCONT)
}

// The broker is stopped, killed and frozen.
func TestChaosBroker(t *testing.T) {
	s := newStorm(t, harness.Kinds...)
	s.begin()
	s.blow(many(t, "FAULTS", 3), func() {
		switch s.rng.IntN(3) {
		case 0:
			dev(t, "restart", "kafka")
		case 1:
			crash(t, "kafka")
		case 2:
			freeze(t, "kafka", time.Duration(1+s.rng.IntN(15))*time.Second)
		}
	})
}

// A database is stopped, killed and frozen. What became of the transaction that was open then, it is asked.
func TestChaosDatabase(t *testing.T) {
	for _, kind := range harness.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := newStorm(t, kind)
			w := s.writers[0]
			w.outlives = func(error) {
				harness.Await(t, "the database to be back", func() (bool, string) {
					err := w.Ping()
					return err == nil, fmt.Sprint(err)
				})
			}
			s.begin()
			s.blow(many(t, "FAULTS", 3), func() {
				switch s.rng.IntN(3) {
				case 0:
					dev(t, "restart", string(kind))
				case 1:
					crash(t, string(kind))
				case 2:
					freeze(t, string(kind), time.Duration(1+s.rng.IntN(10))*time.Second)
				}
			})
		})
	}
}

// The network between feeder and databases is cut in one direction and in both, slowed, and reset.
func TestChaosNetwork(t *testing.T) {
	s := newStorm(t, harness.Kinds...)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxies := make([]*toxiproxy.Proxy, len(s.dbs))
	for i, d := range s.dbs {
		proxies[i] = toxiproxy.NewProxy(server, string(d.Kind), harness.FreeAddr(t), d.Addr)
		if err := proxies[i].Start(); err != nil {
			t.Fatal(err)
		}
		defer proxies[i].Stop()
		d.Addr = proxies[i].Listen
	}
	s.begin()
	s.blow(many(t, "FAULTS", 5), func() {
		for _, p := range proxies {
			for _, direction := range [][]string{{"upstream"}, {"downstream"}, {"upstream", "downstream"}}[s.rng.IntN(3)] {
				s.poison(p, direction)
			}
		}
		<-time.After(time.Duration(1+s.rng.IntN(12)) * time.Second)
		for _, p := range proxies {
			p.Toxics.ResetToxics(context.Background())
		}
	})
}

// poison adds a fault to one direction of a proxy.
func (s *storm) poison(p *toxiproxy.Proxy, direction string) {
	kind, attributes := "", ""
	switch s.rng.IntN(4) {
	case 0:
		kind, attributes = "timeout", `{"timeout": 0}` // nothing passes, and nobody is told
	case 1:
		kind, attributes = "reset_peer", `{"timeout": 0}`
	case 2:
		kind, attributes = "limit_data", fmt.Sprintf(`{"bytes": %d}`, s.rng.IntN(20_000))
	case 3:
		kind, attributes = "slicer", `{"average_size": 7, "size_variation": 3, "delay": 1}`
	}
	toxic := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, direction, kind, direction, attributes)
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		s.t.Fatal(err)
	}
}

// The leader is stopped by SIGSTOP, the first time for a minute, in the midst of writes that go on. Another takes over meanwhile. The
// one that was stopped wakes up, sends what it had under way, sees that it is out, and stands by.
func TestChaosLeader(t *testing.T) {
	s := newStorm(t, harness.Kinds...)
	s.begin()
	for _, w := range s.writers {
		w.late = true
	}
	leader, other := s.feeder, s.p.Feed()
	all := &fleet{t: t, p: s.p, dbs: s.dbs, topics: s.topics}
	for i := range many(t, "FAULTS", 2) {
		all.await(2)
		stopped := time.Minute
		if i > 0 {
			stopped = time.Duration(8+s.rng.IntN(20)) * time.Second // above a session
		}
		from := s.topics.count()
		end := make(chan struct{})
		var writing errgroup.Group
		for _, w := range s.writers {
			writing.Go(func() error { return w.runUntil(end) })
		}
		harness.Await(t, fmt.Sprintf("records before fault %d", i+1), func() (bool, string) {
			n := s.topics.count() - from
			return n >= large, fmt.Sprintf("%d of them", n)
		})
		before := strings.Count(leader.Log(), standsBy)
		leader.Pause()
		begin := time.Now()
		harness.Await(t, "the other one to lead every source", func() (bool, string) {
			log := other.Log()
			return strings.Count(log, "took the source over") >= (i/2+1)*len(s.dbs), log
		})
		taken := s.topics.count()
		harness.Await(t, "records while the leader is stopped", func() (bool, string) {
			n := s.topics.count() - taken
			return n > 0, fmt.Sprintf("%d of them", n)
		})
		<-time.After(time.Until(begin.Add(stopped)))
		leader.Continue()
		harness.Await(t, "the one that was stopped to stand by", func() (bool, string) {
			return strings.Count(leader.Log(), standsBy) == before+len(s.dbs), leader.Log()
		})
		close(end)
		if err := writing.Wait(); err != nil {
			t.Fatal(err)
		}
		leader, other = other, leader
	}
	s.settle(leader, other)
	for _, p := range []*harness.Process{leader, other} {
		if log := p.Log(); strings.Contains(log, "gap accept") {
			t.Errorf("a feeder says:\n%s", log)
		}
	}
}

// standsBy is what a leader says that has learned that it is out.
const standsBy = "no longer leads the source"
