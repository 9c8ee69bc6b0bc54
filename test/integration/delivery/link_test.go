//go:build integration

package delivery

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"invalidator/test/integration/harness"
)

// cut lets nothing through, while connections stand.
func cut(t testing.TB, p *toxiproxy.Proxy) {
	poison(t, p, "upstream", "timeout", 1, `"timeout": 0`)
	poison(t, p, "downstream", "timeout", 1, `"timeout": 0`)
}

// cutSome is cut for half of the connections, so that some workers reach the node, or all of them by some.
func cutSome(t testing.TB, p *toxiproxy.Proxy) {
	poison(t, p, "downstream", "timeout", 0.5, `"timeout": 0`)
}

// deafen loses what is answered: deletes are carried out, and nobody knows.
func deafen(t testing.TB, p *toxiproxy.Proxy) {
	poison(t, p, "downstream", "timeout", 1, `"timeout": 0`)
}

func slow(t testing.TB, p *toxiproxy.Proxy) {
	poison(t, p, "upstream", "latency", 1, `"latency": 150, "jitter": 100`)
	poison(t, p, "downstream", "latency", 1, `"latency": 150, "jitter": 100`)
}

func reset(t testing.TB, p *toxiproxy.Proxy) {
	poison(t, p, "downstream", "reset_peer", 1, `"timeout": 30`)
}

func mend(_ testing.TB, p *toxiproxy.Proxy) { p.Toxics.ResetToxics(context.Background()) }

// poison adds a fault to one direction of a proxy.
func poison(t testing.TB, p *toxiproxy.Proxy, direction, kind string, part float64, attributes string) {
	toxic := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "toxicity": %g, "attributes": {%s}}`, direction, kind, direction, part, attributes)
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Errorf("adding %s to %s: %v", toxic, p.Name, err)
	}
}

// proxies stand before servers until the test ends, and let everything through at first.
type proxies struct{ server *toxiproxy.ApiServer }

func newProxies() proxies {
	return proxies{toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

func (p proxies) add(t testing.TB, upstream string) *toxiproxy.Proxy {
	t.Helper()
	listen := harness.FreeAddr(t)
	proxy := toxiproxy.NewProxy(p.server, listen+" before "+upstream, listen, upstream)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy
}
