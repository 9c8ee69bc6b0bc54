//go:build integration

package memcachetest

import (
	"crypto/tls"
	"net"
	"slices"
	"testing"
)

func TestConformanceOfMemcached(t *testing.T) {
	p := StartProcess(t)
	conformance(t, conversations(t, everything), func(t *testing.T) net.Conn { return dial(t, p.Addr) })
}

func TestConformanceOfMemcachedsAuthentication(t *testing.T) {
	p := StartProcess(t, "-Y", TokenFile(t, "invalidator", "secret"))
	conformance(t, conversations(t, authentication), func(t *testing.T) net.Conn { return dial(t, p.Addr) })
}

func TestConformanceOfMemcachedWithTLS(t *testing.T) {
	c := NewCertificate(t)
	p := StartProcess(t, c.Args()...)
	// What follows a block that is longer than it says is read late over TLS: with the next bytes that come.
	cases := slices.DeleteFunc(conversations(t, everything), func(c conversation) bool { return slices.Contains(c.lines, "< "+badChunk) })
	conformance(t, cases, func(t *testing.T) net.Conn {
		conn, err := tls.Dial("tcp", p.Addr, c.Trust())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	})
}
