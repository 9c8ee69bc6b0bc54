//go:build integration

package memcache

import (
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// H10: a proxy that hangs up on `md` and `mn`. It is spoken to in the classic protocol, whether or not that is configured, and its
// NOT_FOUND can be proven.
func TestH10_Nutcracker(t *testing.T) {
	for name, opts := range map[string]Options{
		"found out":         {},
		"configured":        {Protocol: Classic},
		"NOT_FOUND, proven": {Protocol: Classic, VerifyNotFound: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.StartProcess(t)
			proxy := memcachetest.StartProxy(t, node.Addr)
			r := newReader(t, node.Addr)
			keys := append(names("user:", 300), "u:Zo\u00eb", strings.Repeat("k", 250))
			r.fill(keys)
			c, logged := start(t, opts)
			all := append(names("absent:", 300), keys...)
			deleteAll(t, c, proxy.Addr, all).want(t, len(all))
			if n := r.there(keys); n != 0 {
				t.Errorf("%d keys are still there", n)
			}
			if n := r.there(names("absent:", 300)); n != 0 {
				t.Errorf("%d keys are there that were not before", n)
			}
			st := c.Nodes()[0]
			if st.Protocol != Classic || st.Retried != 0 || opts.Protocol == "" && logged.Count("does not know the meta protocol") != 1 {
				t.Errorf("state: %+v\n%s", st, logged)
			}
		})
	}
}

// The node behind the proxy dies: nothing is called deleted that is not, and the proxy goes off as a node does. When the
// node is back, so is the proxy.
func TestH7_TheNodeBehindAProxyDies(t *testing.T) {
	node := memcachetest.StartProcess(t)
	proxy := memcachetest.StartProxy(t, node.Addr)
	opts := Options{Protocol: Classic, MaxLag: time.Second}
	c, _ := start(t, opts)
	deleteAll(t, c, proxy.Addr, []string{"before"}).want(t, 1)
	if err := node.Stall(); err != nil {
		t.Fatal(err)
	}
	w := deleteAll(t, c, proxy.Addr, names("k", 10))
	for range 10 {
		checkOff(t, w.next(t).err, proxy.Addr, "SERVER_ERROR")
	}
	if err := node.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is on, and deletes", func() bool {
		w := make(acks, 1)
		return c.Delete(t.Context(), sink.Live, sink.Copy{Node: proxy.Addr, Key: "after"}, w) == nil && w.next(t).err == nil
	})
}
