package memcache

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink/memcachetest"
)

// A proxy or an old server is spoken to in the classic protocol, and so that it shows; it is asked again at the next connection.
func TestH10_ANodeThatSpeaksNoMeta(t *testing.T) {
	for name, reply := range map[string]memcachetest.Reply{
		"answers ERROR": {Text: "ERROR\r\n", Then: memcachetest.Skip},
		"hangs up":      {Then: memcachetest.Hangup},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.Start(t)
			keys := fill(node, 20)
			old := func(_ int, line string) memcachetest.Reply {
				if strings.HasPrefix(line, "m") {
					if isDelete(line) {
						t.Error("a delete was sent to a node that failed the probe")
					}
					return reply
				}
				return memcachetest.Reply{}
			}
			node.Intercept(old)
			c, logged := start(t, quick)
			deleteAll(t, c, node.Addr(), keys).want(t, len(keys))
			deleteAll(t, c, node.Addr(), fill(node, 1)).want(t, 2)
			if st := c.Nodes()[0]; node.Len() != 0 || st.Protocol != Classic || !st.Connected || st.LastError != "" {
				t.Errorf("%d keys are left; state: %+v", node.Len(), st)
			}
			if n := strings.Count(logged.String(), "does not know the meta protocol"); n != 1 {
				t.Errorf("it was logged %d times:\n%s", n, logged)
			}
			var hungUp atomic.Bool // it is replaced by one that knows it
			node.Intercept(func(conn int, line string) memcachetest.Reply {
				if !hungUp.Swap(true) {
					return memcachetest.Reply{Then: memcachetest.Hangup}
				}
				return memcachetest.Reply{}
			})
			eventually(t, "it speaks meta", func() bool {
				deleteAll(t, c, node.Addr(), fill(node, 1)).want(t, 2)
				return c.Nodes()[0].Protocol == Meta && strings.Contains(logged.String(), "speaks the meta protocol")
			})
		})
	}
}

// A node that is restarted hangs up too, and is no old one for that.
func TestH10_ANodeThatHangsUpOnceSpeaksMeta(t *testing.T) {
	node := memcachetest.Start(t)
	var probes atomic.Int64
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if line == "mn" && probes.Add(1) == 1 {
			return memcachetest.Reply{Then: memcachetest.Hangup}
		}
		return memcachetest.Reply{}
	})
	c, logged := start(t, quick)
	deleteAll(t, c, node.Addr(), fill(node, 10)).want(t, 20)
	if st := c.Nodes()[0]; st.Protocol != Meta || strings.Contains(logged.String(), "classic") {
		t.Errorf("state: %+v\n%s", st, logged)
	}
}

// What understands neither protocol is handed no delete.
func TestH10_ANodeThatSpeaksNeither(t *testing.T) {
	node := memcachetest.Start(t)
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if isDelete(line) {
			t.Error("a delete was sent")
		}
		return memcachetest.Reply{Text: "HTTP/1.1 400 Bad Request\r\n", Then: memcachetest.Hangup}
	})
	opts := quick
	opts.MaxLag = 300 * time.Millisecond
	c, _ := start(t, opts)
	w := deleteAll(t, c, node.Addr(), []string{"k"})
	checkOff(t, w.next(t).err, node.Addr(), "HTTP/1.1 400 Bad Request")
}

// A proxy that answers NOT_FOUND to what it only wrote down: no delete counts before the node itself has shown that the key is gone.
func TestH7_NotFoundIsProven(t *testing.T) {
	for verify, there := range map[bool]int{true: 0, false: 20} {
		node := memcachetest.Start(t)
		keys := fill(node, 20)
		var lies, adds atomic.Int64
		node.Intercept(func(_ int, line string) memcachetest.Reply {
			switch {
			case isDelete(line) && lies.Add(1) <= 60:
				return memcachetest.Reply{Text: "NOT_FOUND\r\n", Then: memcachetest.Skip}
			case strings.HasPrefix(line, "add "):
				adds.Add(1)
			}
			return memcachetest.Reply{}
		})
		opts := quick
		opts.Protocol, opts.VerifyNotFound = Classic, verify
		c, _ := start(t, opts)
		deleteAll(t, c, node.Addr(), keys).want(t, len(keys))
		if n := node.Len(); n != there || adds.Load() > 0 != verify {
			t.Errorf("verify %v: %d keys are left, want %d; %d adds", verify, n, there, adds.Load())
		}
	}
}
