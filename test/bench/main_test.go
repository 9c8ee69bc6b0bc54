//go:build bench

package bench

import (
	"os"
	"strconv"
	"testing"

	"invalidator/test/integration/harness"
)

func TestMain(m *testing.M) {
	harness.Fast = true
	code := m.Run()
	harness.RemoveBinary()
	os.Exit(code)
}

// size is a number of rows, divided by BENCH_SHRINK for a quick look.
func size(t *testing.T, rows int) int { return rows / shrink(t) }

func shrink(t *testing.T) int {
	by := 1
	if s := os.Getenv("BENCH_SHRINK"); s != "" {
		var err error
		if by, err = strconv.Atoi(s); err != nil || by < 1 {
			t.Fatalf("BENCH_SHRINK=%q is not a number from 1 on", s)
		}
	}
	return by
}
