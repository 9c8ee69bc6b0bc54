package feed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFlightIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight()
		large, _, err := f.reserve(t.Context(), 2*maxInFlight) // above the bound: alone
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan uint64)
		go func() {
			n, _, _ := f.reserve(t.Context(), 1)
			second <- n
		}()
		synctest.Wait()
		select {
		case <-second:
			t.Fatal("a second record went beside it")
		default:
		}
		f.acked(large, 2*maxInFlight)
		if n := <-second; n != 1 {
			t.Error(n)
		}
		if bytes, _ := f.load(); bytes != 1 {
			t.Errorf("%d bytes under way", bytes)
		}
	})
}

func TestFlightIsBoundedInRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight()
		for range maxRecords {
			if _, ok := f.tryReserve(1); !ok {
				t.Fatal("refused")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := f.reserve(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestFlightTellsHowLongTheOldestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight()
		f.load()
		time.Sleep(time.Hour) // idle is no stall
		f.load()
		first, _ := f.tryReserve(1)
		second, _ := f.tryReserve(1)
		time.Sleep(time.Second)
		f.acked(second, 1)
		if _, waited := f.load(); waited != time.Second {
			t.Error(waited)
		}
		f.acked(first, 1)
		if _, waited := f.load(); waited != 0 {
			t.Error(waited)
		}
		if err := f.drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
