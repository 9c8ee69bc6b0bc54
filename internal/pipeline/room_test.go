package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who fetches waits while too much waits, and goes on when some of it is taken.
func TestRoomBoundsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := room{limit: 10}
		r.add(10)
		r.await(t.Context()) // at the limit there is room
		r.add(1)
		went := make(chan struct{})
		go func() {
			r.await(t.Context())
			close(went)
		}()
		synctest.Wait()
		select {
		case <-went:
			t.Fatal("it went on with 11 of 10 bytes")
		default:
		}
		r.add(-1)
		<-went

		r.add(5)
		began := time.Now()
		r.await(t.Context())
		if waited := time.Since(began); waited != roomWait {
			t.Errorf("it waited %s for others that stand still, want %s", waited, roomWait)
		}
		began = time.Now()
		worked, stop := context.WithCancel(t.Context())
		worker := make(chan struct{})
		go func() { // something is worked off, and as much comes
			defer close(worker)
			for worked.Err() == nil {
				r.add(-1)
				r.add(1)
				time.Sleep(roomWait / 2)
			}
		}()
		r.await(t.Context())
		if waited := time.Since(began); waited != roomMost {
			t.Errorf("it waited %s while others go on, want %s", waited, roomMost)
		}
		stop()
		<-worker
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.await(ctx) // the end of ctx ends the wait
	})
}

// What waits for a schema registry leaves the room to others, and what a partition holds goes with it.
func TestRoomWithoutWhatIsStuck(t *testing.T) {
	w := &Worker{room: room{limit: 10}}
	p := &partition{w: w}
	add := func(n int) {
		p.mu.Lock()
		p.weigh(n)
		p.mu.Unlock()
	}
	has := func(want int) {
		t.Helper()
		if w.room.bytes != want {
			t.Errorf("%d bytes count, want %d", w.room.bytes, want)
		}
	}
	add(20)
	has(20)
	p.stick(true)
	has(0)
	add(5)
	has(0)
	p.stick(false)
	has(25)
	add(-25)
	has(0)
}
