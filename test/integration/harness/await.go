package harness

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Patience is how long a test waits for what must happen: ten times what it takes on a slow machine.
const Patience = 120 * time.Second

// Await waits until cond holds, and fails naming what was awaited and what cond said last.
func Await(t testing.TB, what string, cond func() (ok bool, state string)) {
	t.Helper()
	await(t, what, 200*time.Millisecond, false, cond)
}

// AwaitProgress is Await for what may take long on a busy machine, and is well as long as it gets on: Patience counts from when cond last
// said something else.
func AwaitProgress(t testing.TB, what string, cond func() (ok bool, state string)) {
	t.Helper()
	await(t, what, 200*time.Millisecond, true, cond)
}

// AwaitQuick is Await that looks again and again without getting slower, for what is measured or must be met in time.
func AwaitQuick(t testing.TB, what string, cond func() (ok bool, state string)) {
	t.Helper()
	await(t, what, 2*time.Millisecond, false, cond)
}

func await(t testing.TB, what string, slowest time.Duration, progress bool, cond func() (ok bool, state string)) {
	t.Helper()
	deadline, last := time.Now().Add(Patience), ""
	for pause := time.Millisecond; ; pause = min(2*pause, slowest) {
		ok, state := cond()
		if ok {
			return
		}
		if progress && state != last {
			deadline, last = time.Now().Add(Patience), state
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s: %s", Patience, what, state)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the test ended while it waited for %s: %s", what, state)
		case <-time.After(pause):
		}
	}
}

var uniques atomic.Int64

// Unique is a short text that no other test uses, good for names in every service.
func Unique() string {
	return fmt.Sprintf("t%x_%x", time.Now().UnixMilli()&0xffffffff, os.Getpid()<<8+int(uniques.Add(1)))
}
