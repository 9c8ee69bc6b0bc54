//go:build integration

package memcache

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"invalidator/sink/memcachetest"
)

// Against a memcached with TLS and one with tokens, in batches of every size: 1,024 deletes of 60 bytes are several TLS records.
func TestMemcachedWithTLSAndTokens(t *testing.T) {
	cert := memcachetest.NewCertificate(t)
	token := []string{"-Y", memcachetest.TokenFile(t, "invalidator", "secret")}
	for name, tc := range map[string]struct {
		args []string
		opts Options
	}{
		"TLS":            {cert.Args(), Options{TLS: cert.Trust()}},
		"a token":        {token, Options{User: "invalidator", Password: func() string { return "secret" }}},
		"TLS, and token": {append(cert.Args(), token...), Options{TLS: cert.Trust(), User: "invalidator", Password: func() string { return "secret" }}},
	} {
		t.Run(name, func(t *testing.T) {
			bothProtocols(t, tc.opts, func(t *testing.T, opts Options) {
				node := memcachetest.StartProcess(t, tc.args...)
				r := newReaderOver(t, node.Addr, opts)
				c, _ := start(t, opts)
				for _, n := range []int{1, 10, 500, 4000} {
					keys := names("a-key-that-makes-a-batch-of-many-kilobytes:user:by-address:", n)
					r.fill(keys)
					deleteAll(t, c, node.Addr, keys).want(t, len(keys))
					if left := r.there(keys[:min(n, 500)]); left != 0 {
						t.Errorf("%d of %d keys are still there", left, n)
					}
				}
				if st := c.Nodes()[0]; st.Retried != 0 || st.Protocol != opts.Protocol {
					t.Errorf("state: %+v", st)
				}
			})
		})
	}
}

// Who cannot be verified is handed nothing, and a node that refuses us neither; the reason shows.
func TestMemcachedThatDoesNotFit(t *testing.T) {
	cert := memcachetest.NewCertificate(t)
	token := []string{"-Y", memcachetest.TokenFile(t, "invalidator", "secret")}
	for name, tc := range map[string]struct {
		args []string
		opts Options
		why  string
	}{
		"another authority": {cert.Args(), Options{TLS: memcachetest.NewCertificate(t).Trust()}, "certificate"},
		"another name":      {cert.Args(), Options{TLS: &tls.Config{RootCAs: cert.Trust().RootCAs, ServerName: "elsewhere"}}, "elsewhere"},
		"no TLS there":      {nil, Options{TLS: cert.Trust()}, "connecting"},
		"a wrong password":  {token, Options{User: "invalidator", Password: func() string { return "wrong" }}, ErrAuth.Error()},
		"no password":       {token, Options{}, "CLIENT_ERROR unauthenticated"},
	} {
		t.Run(name, func(t *testing.T) {
			bothProtocols(t, tc.opts, func(t *testing.T, opts Options) {
				opts.MaxLag, opts.Timeout = 500*time.Millisecond, 200*time.Millisecond
				node := memcachetest.StartProcess(t, tc.args...)
				c, _ := start(t, opts)
				checkOff(t, deleteAll(t, c, node.Addr, []string{"k"}).next(t).err, node.Addr, tc.why)
			})
		})
	}
}

// newReaderOver is newReader for a node with TLS or a token.
func newReaderOver(t testing.TB, addr string, opts Options) *reader {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if opts.TLS != nil {
		trust := opts.TLS.Clone()
		trust.ServerName = "127.0.0.1"
		conn = tls.Client(conn, trust)
	}
	r := &reader{t: t, conn: conn, in: bufio.NewReader(conn)}
	if opts.User != "" {
		said := opts.User + " " + opts.Password()
		fmt.Fprintf(conn, "set x 0 0 %d\r\n%s\r\n", len(said), said)
		if got := r.line(); !strings.HasPrefix(got, "STORED") {
			t.Fatal(got)
		}
	}
	return r
}
