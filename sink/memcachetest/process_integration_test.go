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

func startReal(t *testing.T, args ...string) string {
	t.Helper()
	p := StartProcess(t, args...)
	AwaitIdle(t, p.Addr)
	return p.Addr
}

func TestConformanceOfMemcachedsDumps(t *testing.T)      { conformanceOfDumps(t, startReal) }
func TestMemcachedsDumpLineEnds(t *testing.T)            { dumpLineEnds(t, startReal) }
func TestMemcachedsOneDumpAtATime(t *testing.T)          { oneDumpAtATime(t, startReal) }
func TestASecondDumpHangsMemcached(t *testing.T)         { aSecondDumpHangs(t, startReal) }
func TestAPausedDumpHangsMemcachedsClients(t *testing.T) { aPausedDumpHangsClients(t, startReal) }
func TestAMemcachedsDumpEndsWithItsClient(t *testing.T)  { aDumpEndsWithItsClient(t, startReal) }
func TestOnItGoesAfterAMemcachedsDump(t *testing.T)      { onItGoesAfterADump(t, startReal) }
func TestMemcachedsCounters(t *testing.T)                { countersCount(t, startReal) }
func TestMemcachedsSettings(t *testing.T)                { settingsShow(t, startReal) }
