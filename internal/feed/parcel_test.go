package feed

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

// While a parcel is on its way nobody else writes into it, whoever gives others back meanwhile.
func TestParcelsOnTheirWayAreNotUsedAgain(t *testing.T) {
	const under, rounds = 50, 20_000
	var all parcels
	way := make(chan *parcel, under)
	var answering sync.WaitGroup
	all.sent = func(p *parcel, err error) {
		if err != nil {
			t.Error(err)
		}
		all.giveBack(p)
	}
	for range 2 {
		answering.Go(func() {
			for p := range way {
				if want := strconv.FormatUint(p.number, 10); string(p.out.Value) != want {
					t.Errorf("parcel %s holds %s", want, p.out.Value)
				}
				p.out.Done(nil)
			}
		})
	}
	to := &table{topic: "t"}
	for i := range uint64(rounds) {
		p := all.take()
		value := strconv.AppendUint(p.memory, i, 10)
		p.number = i
		p.fill(to, nil, value)
		way <- p
	}
	close(way)
	answering.Wait()
	if n := len(all.own) + len(all.back); n > under+3 {
		t.Errorf("%d parcels were made", n)
	}
}

// A record that outgrows its parcel leaves its memory there, unless that is large; and a parcel costs nothing the second time.
func TestParcelsKeepTheirMemory(t *testing.T) {
	var all parcels
	all.sent = func(p *parcel, _ error) { all.giveBack(p) }
	send := func(n int) {
		p := all.take()
		p.fill(&table{}, nil, append(p.memory, bytes.Repeat([]byte{'x'}, n)...))
		p.out.Done(nil)
	}
	send(10 * firstMemory)
	if p := all.take(); cap(p.memory) < 10*firstMemory {
		t.Errorf("%d bytes", cap(p.memory))
	} else {
		all.giveBack(p)
	}
	send(2 * maxPooled)
	if p := all.take(); cap(p.memory) != firstMemory {
		t.Errorf("%d bytes after a large record", cap(p.memory))
	} else {
		all.giveBack(p)
	}
	to := &table{}
	if n := testing.AllocsPerRun(100, func() {
		p := all.take()
		p.fill(to, nil, append(p.memory, 'x'))
		p.out.Done(nil)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	for range 2 * maxSpare {
		all.giveBack(&parcel{})
	}
	if len(all.back) > maxSpare {
		t.Errorf("%d parcels wait", len(all.back))
	}
}

// The clock goes on after some changes, and when it was stopped.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		begin := c.now()
		time.Sleep(time.Second)
		for range clockChanges - 1 {
			if at := c.now(); at != begin {
				t.Fatal(at.Sub(begin))
			}
		}
		if at := c.now(); at.Sub(begin) != time.Second {
			t.Error(at.Sub(begin))
		}
		time.Sleep(time.Second)
		c.stop()
		if at := c.now(); at.Sub(begin) != 2*time.Second {
			t.Error(at.Sub(begin))
		}
	})
}

// A parcel that failed is not used again: whether the producer still has it is not known.
func TestFailedParcelsAreNotUsedAgain(t *testing.T) {
	r := &run{flight: newFlight(), fail: func(error) {}}
	r.parcels.sent = r.sent
	p := r.parcels.take()
	p.table = &table{}
	p.out.Done(&changelog.ProduceError{Err: errors.New("no")})
	if r.parcels.take() == p {
		t.Error("it is")
	}
}
