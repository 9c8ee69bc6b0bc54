package pipeline

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

// A promotion has the deletes of the last replay.window done again, of that shard alone, on every copy, in all rounds, before other debts.
func TestPromotionIsReplayed(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		told := r.told()
		r.row(0, "s0")
		r.pass(2 * time.Minute)
		r.see(t, record(7, twoShards))
		a, b := r.row(1, "s0"), r.row(2, "s1")
		r.pass(3 * settle)
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n2,n5 s1=n3,n4"))
		r.wantDebts(t, "epoch 7-8 1-3")
		r.wantEpochs(t, 7, 8)
		r.pass(gather)
		if lane := r.nodes.laneOf("n2 " + a); lane != "urgent" {
			t.Errorf("lane %q", lane)
		}
		r.pass(settle)
		r.wantTimes(t, 2, "n1 "+a, "n2 "+a, "n5 "+a) // the former primary may come back with what it held
		r.wantTimes(t, 0, "n3 "+b, "n4 "+b, "n2 "+r.key(0, "s0"))
		r.wantDebts(t)
		r.wantEpochs(t, 7, 8)
		r.wantCount(t, 1, "replay_keys_total", "epoch")
		last := (*told)[len(*told)-1]
		if last.ID != "epoch/7-8" || !slices.Equal(last.Shards, []string{"s0"}) || !last.Done || last.From != 1 || last.To != 3 || last.Keys != 1 || last.Copies != 3 || (*told)[0].Done {
			t.Errorf("told %+v", *told)
		}
	})
}

// A partition that is quiet has acted all the same, and its next owner issues under no less: else of two owners the second would take for acted on what it
// has not seen.
func TestQuietPartitionActs(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		r.wantDebts(t)
		r.wantEpochs(t, 7, 8)
		behind, was, offset := r.next(t)
		behind.views.Store(viewOf(t, time.Now(), record(7, twoShards)))
		behind.w.Assign(users, offset, was)
		key := behind.row(0, "s0")
		behind.pass(10 * time.Second)
		behind.wantTimes(t, 0, "n1 "+key)
		behind.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		behind.pass(2 * settle)
		behind.wantTimes(t, 2, "n1 "+key, "n2 "+key)
		behind.wantEpochs(t, 7, 8)
	})
}

// A state that says acted has the debt, whenever it is taken; and it says that nobody may issue under less.
func TestStateThatSaysActedHasTheDebt(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.row(0, "s0")
		r.pass(3 * settle)
		defer r.holdLog()() // nothing is paid
		p := r.w.partition(users)
		stop := takesStates(t, p, func(s State) error {
			last := s.Acted.Epochs[len(s.Acted.Epochs)-1]
			if s.Issued.Epoch < last {
				return fmt.Errorf("acted on %d, and a next owner may issue under %d", last, s.Issued.Epoch)
			}
			for e := int64(8); e <= last; e++ {
				if !slices.ContainsFunc(s.Debts, func(d Debt) bool { return d.Name == epochName(e-1, e) }) {
					return fmt.Errorf("acted on %v, and the debts are %v", s.Acted.Epochs, s.Debts)
				}
			}
			return nil
		})
		defer stop()
		records := []string{record(7, twoShards)}
		for e := int64(8); e < 60; e++ {
			records = append(records, record(e, []string{twoShards, "s0=n2,n1 s1=n3,n4"}[e%2]))
			r.views.Store(viewOf(t, time.Now(), records[max(0, len(records)-3):]...))
			for epochs, _ := p.acted.get(); epochs[len(epochs)-1] < e; epochs, _ = p.acted.get() { // a busy wait: who takes states never rests
				rouse(p.wake)
				runtime.Gosched()
			}
		}
	})
}

// A state reads what was acted on before it reads the debts.
func TestStateReadsActedFirst(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		p, s := r.w.partition(users), r.w.opts.Snapshots.Current()
		defer r.holdLog()()
		stop := takesStates(t, p, func(s State) error {
			last := s.Acted.Epochs[len(s.Acted.Epochs)-1]
			if last > 7 && !slices.ContainsFunc(s.Debts, func(d Debt) bool { return d.Order.Mark.Offset >= last }) {
				return fmt.Errorf("acted on %d, and the debts are %v", last, s.Debts)
			}
			return nil
		})
		defer stop()
		for e := int64(8); e < 20_000; e++ {
			p.ledger.openAgain(debtID{KindReplay, fmt.Sprint(e)}, spans{{0, 1}}, &Order{Mark: ControlMark{Offset: e}}, s)
			p.onEpochs([]int64{e})
			p.ledger.remove(debtID{KindReplay, fmt.Sprint(e - 1)})
		}
	})
}

// takesStates takes states of a partition all the time, until stop is called, which waits.
func takesStates(t *testing.T, p *partition, check func(State) error) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
			}
			s, err := parseState(p.keep().State)
			if err == nil {
				err = check(s)
			}
			if err != nil {
				t.Error(err)
				<-ended
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// A primary dies just after it acknowledged deletes that its replica never got, and is replaced minutes later: what was issued in the last replay.window before
// it died is done again, and what it missed since. Also where it had nothing to be sent when it died.
func TestPromotionThatComesLate(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		old := r.row(0, "s0")
		r.pass(2 * time.Minute)
		acknowledged := r.row(1, "s0")
		r.pass(20 * time.Second)
		r.nodes.turn("n1", false)
		r.wantDebts(t, "node n1 1-")
		for range 5 {
			r.pass(time.Minute)
			r.see(t, record(7, twoShards)) // etcd is there all the time, and holds no other
		}
		missed := r.row(2, "s0")
		r.pass(3 * time.Minute)
		r.see(t, record(7, twoShards))
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n2 s1=n3,n4"))
		r.wantDebts(t, "epoch 7-8 1-3", "node n1 1-")
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n2 "+acknowledged, "n2 "+missed)
		r.wantTimes(t, 0, "n2 "+old)
		r.wantDebts(t, "node n1 1-")
	})
}

// A worker speaks to all nodes of a ring that it sees, so that one which dies is missed, though this worker has deleted nothing there.
func TestWorkerSpeaksToAllNodes(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		heard := func() (nodes []string) {
			for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
				if r.w.heardSince(n+":1", r.w.partition(users).began) {
					nodes = append(nodes, n)
				}
			}
			return nodes
		}
		if got := heard(); !slices.Equal(got, []string{"n1", "n2", "n3", "n4"}) {
			t.Errorf("heard %q", got)
		}
		r.see(t, record(7, twoShards), record(8, "s0=n1,n5 s1=n3,n4"))
		if got := heard(); !slices.Contains(got, "n5") {
			t.Errorf("heard %q", got)
		}
	})
}

// A node that was never heard since a partition came may have died when its last owner did, and nobody saw that: it owes what that one issued last.
func TestNodeThatDiedWithTheLastOwner(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.row(0, "s0")
		r.pass(2 * time.Minute)
		r.row(1, "s0")
		r.row(2, "s1")
		r.pass(3 * settle)
		o, was, offset := r.next(t)
		time.Sleep(5 * time.Minute) // all workers are down, and n1 dies
		o.nodes.mu.Lock()
		o.nodes.off["n1"] = true
		o.nodes.mu.Unlock()
		o.see(t, record(7, twoShards))
		o.w.Assign(users, offset, was)
		o.pass(2 * time.Second)
		o.w.NodeTurned("n3:1", false) // it has answered
		o.wantDebts(t)
		o.w.NodeTurned("n1:1", false) // this one never did
		o.wantDebts(t, "node n1 1-")
		o.see(t, record(7, twoShards), record(8, "s0=n2 s1=n3,n4"))
		o.wantDebts(t, "epoch 7-8 1-3", "node n1 1-")
	})
}

// A registry that was restored to what it was before: everything that the journal has is done again, once, since nobody knows what moved.
func TestRegistryThatWentBackMovesAll(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.row(0, "s0")
		r.pass(2 * time.Hour)
		r.row(1, "s1")
		r.see(t, record(7, twoShards), record(8, twoShards), record(9, "s0=n5 s1=n6"))
		r.row(2, "s1")
		r.pass(time.Minute)
		r.wantDebts(t)
		o, was, offset := r.next(t)
		o.views.Store(viewOf(t, time.Now(), record(7, twoShards)))
		o.w.Assign(users, offset, was)
		o.pass(time.Second)
		confirm := func() { o.see(t, record(7, twoShards)) }
		confirm()
		release := o.holdLog()
		o.pass(sightWait)
		o.wantDebts(t, "epoch 9-7 0-3")
		release()
		o.pass(gather + 2*settle)
		o.wantTimes(t, 2, "n1 "+o.key(0, "s0"), "n3 "+o.key(1, "s1"), "n3 "+o.key(2, "s1"))
		for range 5 {
			confirm() // another topology, the same record
			o.pass(time.Second)
			o.wantDebts(t)
		}
		if s := o.state(t); !slices.Equal(s.Acted.Epochs, []int64{7}) || s.Issued.Epoch != 9 {
			t.Errorf("acted on %v, and a next owner issues under %d at least", s.Acted.Epochs, s.Issued.Epoch)
		}
	})
}

// A record that another worker saw, and that comes after a newer one, is acted on as well: nothing went to its nodes.
func TestRecordThatComesLate(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		key := r.row(0, "s0")
		r.pass(3 * settle)
		r.see(t, record(7, twoShards), record(9, twoShards))
		r.wantEpochs(t, 7, 9)
		r.pass(time.Minute)
		r.wantDebts(t)
		more := r.row(1, "s0")
		r.pass(3 * settle)
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"), record(9, twoShards))
		r.wantDebts(t, "epoch 7-9 0-2") // the window is from when 7 was last known to be held
		r.wantEpochs(t, 7, 8, 9)
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n5 "+key, "n5 "+more)
		r.see(t, record(6, "s0=n6 s1=n3,n4"), record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"), record(9, twoShards))
		r.wantEpochs(t, 6, 7, 8, 9)
		r.pass(time.Minute)
		if n := r.nodes.count("n6 " + more); n < 2 {
			t.Errorf("%d deletes on the node of a record before all that were known", n)
		}
	})
}

// Where all records between two are known, what moved is done again; where one is missing, everything.
func TestEpochsThatAreSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		records []string
		moved   int // times that a key of the shard is deleted which is the same at both ends
	}{
		"known":   {[]string{record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"), record(9, "s0=n1,n2 s1=n3,n4")}, 0},
		"missing": {[]string{record(7, twoShards), record(9, "s0=n1,n2 s1=n3,n4")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ringed(t, func(t *testing.T, r *rig) {
				there, here := r.row(0, "s0"), r.row(1, "s1")
				r.pass(3 * settle)
				r.nodes.take()
				r.see(t, c.records...)
				r.pass(gather + 2*settle)
				r.wantTimes(t, 2, "n1 "+there)
				r.wantTimes(t, c.moved, "n3 "+here)
				r.wantDebts(t)
			})
		})
	}
}

// A round that is under way when a record comes has passed by the nodes that are owners now: it is followed by one more, on the live path and in a pass; also where
// one round would have been enough.
func TestRoundThatIsUnderWayWhenARecordComes(t *testing.T) {
	long := settle + lateBy + time.Second
	for name, late := range map[string]bool{"as it comes": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			ringed(t, func(t *testing.T, r *rig) {
				defer r.holdLog()() // what the epoch's debt does is not looked at here
				c := update(r.idIn(0, "s0"), "a", "a")
				if late {
					c.CommitTime = time.Now().Add(-long)
				}
				r.nodes.hold("n2", true)
				r.sendAt(0, c, c.CommitTime)
				synctest.Wait()
				if !late {
					r.nodes.hold("n2", false)
					r.pass(settle / 2)
					r.nodes.hold("n2", true)
					r.pass(settle / 2) // the second round is under way
				}
				r.nodes.take()
				r.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"))
				r.nodes.hold("n2", false)
				r.pass(2 * settle)
				r.wantTimes(t, 1, "n5 "+r.key(0, "s0"))
				r.wantMark(t, 1)
			})
		})
	}
}

// The partition moves while an epoch is paid: the next owner goes on at the mark, and does not act on it again.
func TestEpochIsGoneOnWithByTheNextOwner(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for o := range int64(4) {
			r.row(o, "s0")
		}
		r.pass(3 * settle)
		r.past.mu.Lock()
		r.past.batch = 1
		r.past.mu.Unlock()
		r.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		r.pass(gather)
		r.nodes.hold("n1", true)
		r.pass(settle / 2)
		o, was, offset := r.next(t)
		release := o.holdLog()
		o.w.Assign(users, offset, was)
		o.wantDebts(t, "epoch 7-8 0-4")
		o.wantEpochs(t, 7, 8)
		release()
		o.pass(gather + 2*settle)
		o.wantTimes(t, 2, "n2 "+o.key(0, "s0"), "n2 "+o.key(3, "s0"))
		o.wantDebts(t)
	})
}

// A state of before acts on what came after the least epoch under which anything was issued; without a journal, on what came after the epoch it issued under.
func TestUpgradeFromVersion2(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"a journal":  {`{"v":2,"offset":9,"debts":[],"journal":[[%d,5,1,%[1]d,"m",["live",3,4]],[%[1]d,6,1,%[1]d,"m",["live",5,8]]],"issued":{"epoch":6,"hot_revision":1},"acted":{"epoch":6,"hot_revision":1}}`, "epoch 5-7 3-9"},
		"no journal": {`{"v":2,"offset":9,"debts":[],"journal":[],"issued":{"epoch":6,"hot_revision":1},"acted":{"epoch":6,"hot_revision":1}}`, ""},
		"version 1":  {`{"v":1,"offset":9,"debts":[],"journal":[],"acted":{"epoch":6,"hot_revision":1}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRinged(t)
				r.see(t, record(5, "s0=n5 s1=n3,n4"), record(6, twoShards), record(7, twoShards))
				defer r.holdLog()()
				state := c.state
				if strings.Contains(state, "%d") {
					state = fmt.Sprintf(state, time.Now().Unix())
				}
				r.w.Assign(users, 9, changelog.Restored{State: []byte(state)})
				if c.want == "" {
					r.wantDebts(t)
				} else {
					r.wantDebts(t, c.want)
				}
				r.wantEpochs(t, 5, 6, 7)
				if s := r.state(t); s.Acted.HotRevision != 1 {
					t.Errorf("acted on hot keys %d", s.Acted.HotRevision)
				}
			})
		})
	}
}
