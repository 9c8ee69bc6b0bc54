//go:build integration

package upgrade

import (
	"testing"

	"go.uber.org/goleak"

	"invalidator/test/integration/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(exit{m}) }

type exit struct{ m *testing.M }

func (e exit) Run() int {
	code := e.m.Run()
	harness.RemoveBinary()
	return code
}
