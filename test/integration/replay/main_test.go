//go:build integration

package replay

import (
	"testing"

	"go.uber.org/goleak"

	"invalidator/test/integration/harness"
)

func TestMain(m *testing.M) {
	// A proxy's connection that was cut while something was written stays there for good.
	goleak.VerifyTestMain(exit{m}, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}

type exit struct{ m *testing.M }

func (e exit) Run() int {
	code := e.m.Run()
	harness.RemoveBinary()
	return code
}
