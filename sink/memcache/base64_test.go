package memcache

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// binaryKeys are keys that only base64 can carry.
var binaryKeys = []string{"a b", "\x00", "u:\x00\xff\xfe", "u:a\r\nmd victim\r\n", "u:\x7f", "u:\t", strings.Repeat("k", 185) + " "}

// fillInBase64 stores a value under each key, as a client with the flag b does, and beside them what a key cut short would hit.
func fillInBase64(t *testing.T, addr string, keys []string) *person {
	t.Helper()
	p := newPerson(t, addr)
	for _, key := range []string{"a", "victim", "u:a"} {
		if got := p.ask("ms " + key + " 3\r\nold"); got != "HD" {
			t.Fatal(got)
		}
	}
	for _, key := range keys {
		if got := p.ask("ms " + base64.StdEncoding.EncodeToString([]byte(key)) + " 3 b T1000\r\nold"); got != "HD" {
			t.Fatalf("%q: %s", key, got)
		}
	}
	return p
}

func TestKeysInBase64(t *testing.T) { keysInBase64(t, memcachetest.Start(t).Addr()) }

// keysInBase64 deletes and marks what clients stored in base64: that, and nothing else. What needs no base64 is the same item.
func keysInBase64(t *testing.T, addr string) {
	keys := append([]string{"u:plain", "u:\xff"}, binaryKeys...)
	for name, do := range map[string]struct {
		send func(*testing.T, *Client) acks
		want string // of mg s t, of the time the tens
	}{
		"delete": {func(t *testing.T, c *Client) acks { return deleteAll(t, c, addr, keys) }, "EN"},
		"stale":  {func(t *testing.T, c *Client) acks { return markAll(t, c, addr, keys, 35*time.Second) }, "HD s3 t3"},
	} {
		t.Run(name, func(t *testing.T) {
			p := fillInBase64(t, addr, keys)
			c, _ := start(t, Options{})
			do.send(t, c).want(t, len(keys))
			for _, key := range keys {
				if got := p.ask("mg " + base64.StdEncoding.EncodeToString([]byte(key)) + " b s t"); !strings.HasPrefix(got, do.want) {
					t.Errorf("%q: %s, want %s", key, got, do.want)
				}
			}
			for _, key := range []string{"a", "victim", "u:a"} {
				if got := p.ask("mg " + key + " s"); got != "HD s3" {
					t.Errorf("another key, %s: %s", key, got)
				}
			}
			if st := c.Nodes()[0]; st.Retried != 0 {
				t.Errorf("state: %+v", st)
			}
		})
	}
}

// What is sent again, one answer a key, carries the flag too.
func TestAKeyInBase64IsSentAgain(t *testing.T) {
	node := memcachetest.Start(t)
	p := fillInBase64(t, node.Addr(), binaryKeys)
	var cut atomic.Bool
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if strings.HasPrefix(line, "md") && cut.CompareAndSwap(false, true) {
			return memcachetest.Reply{Then: memcachetest.Hangup}
		}
		return memcachetest.Reply{}
	})
	c, _ := start(t, quick)
	deleteAll(t, c, node.Addr(), binaryKeys).want(t, len(binaryKeys))
	for _, key := range binaryKeys {
		if got := p.ask("mg " + base64.StdEncoding.EncodeToString([]byte(key)) + " b"); got != "EN" {
			t.Errorf("%q: %s", key, got)
		}
	}
}

// A delete that the protocol cannot say, or the node does not know, is refused with the reason: neither lost nor tried for ever. What is
// sent beside it is deleted.
func TestH10_KeysInBase64AtANodeWithoutThem(t *testing.T) {
	unknown := func(answer string) memcachetest.Intercept {
		return func(_ int, line string) memcachetest.Reply {
			if strings.Contains(line, " b") {
				return memcachetest.Reply{Text: answer + "\r\n", Then: memcachetest.Skip}
			}
			return memcachetest.Reply{}
		}
	}
	for name, tc := range map[string]struct {
		protocol  Protocol
		intercept memcachetest.Intercept
		reason    string
	}{
		"the classic protocol": {Classic, nil, "not sent: the classic protocol has no way to write a space or a control byte in a key"},
		"a flag unknown to md": {Meta, unknown("CLIENT_ERROR invalid or duplicate flag"), "CLIENT_ERROR invalid or duplicate flag"},
		"an unknown flag":      {Meta, unknown("CLIENT_ERROR invalid flag"), "CLIENT_ERROR invalid flag"},
	} {
		for _, action := range []string{"delete", "stale"} {
			t.Run(name+"/"+action, func(t *testing.T) {
				node := memcachetest.Start(t)
				plain := fill(node, 10)
				node.Intercept(tc.intercept)
				opts := quick
				opts.Protocol = tc.protocol
				c := New(opts, slog.New(slog.DiscardHandler))
				send := deleteAll
				if action == "stale" {
					send = func(t *testing.T, c *Client, node string, keys []string) acks {
						return markAll(t, c, node, keys, 30*time.Second)
					}
				}
				refused := send(t, c, node.Addr(), binaryKeys) // before Run: one batch with the others
				good := deleteAll(t, c, node.Addr(), plain)
				run(t, c)
				for range binaryKeys {
					got := refused.next(t)
					if r := (*sink.RefusedError)(nil); !errors.As(got.err, &r) || r.Answer != tc.reason || r.Copy != got.Copy {
						t.Errorf("%q: %v, want %q", got.Key, got.err, tc.reason)
					}
				}
				good.want(t, len(plain))
				refused.none(t)
			})
		}
	}
}
