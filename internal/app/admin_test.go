package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/test/certs"
)

// asks is a client over TLS, with one connection a request.
func asks(c *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
}

// Over TLS, who has a certificate of the right authority may read, who has none may probe, and another one's is refused. Files that are
// replaced are used at once; those that cannot be read leave the last ones.
func TestAdminTLS(t *testing.T) {
	ours, others := certs.New(t), certs.New(t)
	dir := t.TempDir()
	server := ours.Certify(dir, "server", time.Hour)
	addr, log := freePort(t), &syncBuffer{}
	c := config.Admin{Listen: addr, TLS: &config.AdminTLS{Cert: server.Cert, Key: server.Key, ClientCA: ours.File}}
	var ready obs.Readiness
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- serveAdmin(ctx, c, obs.NewRegistry(), &ready, slog.New(slog.NewTextHandler(log, nil))) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	get := func(client *http.Client, path string) string {
		resp, err := client.Get("https://" + addr + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err.Error()
		}
		return resp.Status[:3]
	}
	none := asks(ours.Client())
	waitFor(t, "the listener", func() bool { return get(none, "/-/healthy") == "200" })
	right := asks(ours.Client(ours.Certify(dir, "right", time.Hour)))
	for name, tc := range map[string]struct {
		client     *http.Client
		path, want string
	}{
		"the right certificate":     {right, "/metrics", "200"},
		"none":                      {none, "/metrics", "403"},
		"none, a probe":             {none, "/-/ready", "200"},
		"of another authority":      {asks(ours.Client(others.Certify(dir, "wrong", time.Hour))), "/metrics", "tls: unknown certificate authority"},
		"expired":                   {asks(ours.Client(ours.Certify(dir, "expired", -time.Hour))), "/metrics", "tls: expired certificate"},
		"a client that trusts none": {asks(others.Client()), "/-/healthy", "certificate signed by unknown authority"},
		"an old TLS":                {asks(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}), "/-/healthy", "protocol version not supported"},
	} {
		if got := get(tc.client, tc.path); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}

	others.Certify(dir, "server", time.Hour)
	if got := get(none, "/-/healthy"); !strings.Contains(got, "unknown authority") {
		t.Errorf("the certificate was replaced by one that the client does not trust: %q", got)
	}
	ours.Certify(dir, "server", time.Hour)
	if err := os.WriteFile(server.Key, []byte("half a ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := get(asks(others.Client()), "/-/healthy"); got != "200" {
			t.Errorf("while the files cannot be read, the last certificate serves: %q", got)
		}
	}
	if n := strings.Count(log.String(), "the admin listener keeps its certificate"); n != 1 {
		t.Errorf("told %d times, want once: %s", n, log)
	}
}

// What cannot be read at the start ends it, and is named.
func TestAdminTLSThatCannotBe(t *testing.T) {
	a := certs.New(t)
	p := a.Certify(t.TempDir(), "server", time.Hour)
	for want, c := range map[string]*config.AdminTLS{
		"admin.tls: reading cert and key": {Cert: p.Cert, Key: a.File},
		"admin.tls.client_ca":             {Cert: p.Cert, Key: p.Key, ClientCA: p.Key + "x"},
		"holds no PEM certificate":        {Cert: p.Cert, Key: p.Key, ClientCA: p.Key},
	} {
		if _, err := adminTLS(c, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A listener that others can reach, and that asks for nothing, is warned of.
func TestAdminThatAnybodyReads(t *testing.T) {
	for listen, warned := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, "[::1]:0": false, ":0": true, "0.0.0.0:0": true} {
		for _, token := range []string{"", "reads"} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			log := &syncBuffer{}
			var ready obs.Readiness
			err := serveAdmin(ctx, config.Admin{Listen: listen, ReadToken: config.NewSecret(token)}, obs.NewRegistry(), &ready, slog.New(slog.NewTextHandler(log, nil)))
			if got := strings.Contains(log.String(), "whoever reaches it may read"); err != nil && !strings.Contains(err.Error(), "address family") || got != (warned && token == "") {
				t.Errorf("%s, token %q: warned %v, %v", listen, token, got, err)
			}
		}
	}
}

// Whatever comes to a worker's listener without the token that deletes, nothing is written, nothing ends, and nothing secret is answered.
func TestHostileRequests(t *testing.T) {
	const reads = "who may read"
	b := newSentBench(t, false, strings.Replace(postAdmin, "listen:", "read_token: '"+reads+"', listen:", 1))
	routes := (&posts{}).routes()
	var paths []string
	for _, r := range routes {
		method, path, _ := strings.Cut(r.Pattern, " ")
		paths = append(paths, path)
		for _, with := range []func(*http.Request){
			func(*http.Request) {},
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+reads) },
			func(r *http.Request) { r.SetBasicAuth("ann", reads) },
			func(r *http.Request) { r.SetBasicAuth("ann", postToken) }, // as a browser would that somebody else sends here
		} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+b.admin+path, strings.NewReader(`{"keys":["user:1"],"shard":"s00"}`))
			if err != nil {
				t.Fatal(err)
			}
			with(req)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %q: %s", r.Pattern, req.Header, resp.Status)
			}
		}
	}

	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	rnd := mathrand.New(mathrand.NewPCG(seed, 0))
	var eg errgroup.Group
	eg.SetLimit(50) // the server lingers over what it refuses
	for range 1000 {
		sent := hostile(rnd, paths)
		eg.Go(func() error {
			answer, err := exchange(b.admin, sent)
			if err != nil {
				return fmt.Errorf("the listener is gone: %w", err)
			}
			if strings.Contains(answer, postToken) || strings.Contains(answer, reads) {
				t.Errorf("a secret is answered to %q: %q", sent, answer)
			}
			if strings.HasPrefix(answer, "HTTP/1.1 202") || strings.HasPrefix(answer, "HTTP/1.1 500") {
				t.Errorf("%q is answered with %q", sent, answer)
			}
			return nil
		})
	}
	if err := eg.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := b.control(); len(got) != 0 {
		t.Errorf("requests were written: %v", got)
	}
	keys := 0
	if err := changelog.ReadTopic(t.Context(), changelog.Options{Brokers: b.conf.Kafka.Brokers}, changelog.NamesFor("").Keys, time.Time{}, false, func(changelog.TopicRecord) error {
		keys++
		return nil
	}); err != nil || keys != 0 {
		t.Errorf("%d records of keys were written, %v", keys, err)
	}
	if s := b.log.String(); strings.Contains(s, "panic") || strings.Contains(s, postToken) || strings.Contains(s, reads) {
		t.Errorf("the log: %s", s)
	}
	if status, answer := b.post("/v1/invalidate", postToken, `{"keys":["user:1"]}`); status != http.StatusAccepted {
		t.Errorf("whoever has the token is answered %d %s", status, answer)
	}
}

// hostile is a request that is none, or not quite one.
func hostile(rnd *mathrand.Rand, paths []string) []byte {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	junk := func(most int) string {
		b := make([]byte, rnd.IntN(most))
		for i := range b {
			b[i] = byte(rnd.UintN(256))
		}
		return string(b)
	}
	body := pick(`{"keys":["user:1"]}`, `{"shard":"s00"}`, `{"keys":[`, "", junk(300), strings.Repeat("[", 5000))
	path := pick(pick(paths...), "/", "/metrics", "/-/ready", "/playground", "/debug/pprof/heap", "//v1/invalidate", "/-/healthy/../v1/invalidate", "/v1/invalidate%00", "/%2e%2e/"+junk(9), "*", "http://other.test/v1/invalidate")
	var r bytes.Buffer
	fmt.Fprintf(&r, "%s %s %s\r\n", pick("GET", "POST", "PUT", "DELETE", "CONNECT", "TRACE", "PRI", "post", junk(6)), path, pick("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", ""))
	fmt.Fprintf(&r, "Host: %s\r\n", pick("127.0.0.1", "", "other.test", junk(20)))
	for range rnd.IntN(4) {
		r.WriteString(pick(
			"Authorization: Bearer\r\n", "Authorization: Bearer  \r\n", "Authorization: Basic !!!\r\n", "Authorization: Basic Og==\r\n", "Authorization: "+junk(40)+"\r\n", "Transfer-Encoding: chunked\r\n",
			"Transfer-Encoding: gzip, chunked\r\n", "Content-Length: 5\r\n", "Content-Length: -1\r\n", "Content-Length: 99999999999999999999\r\n", "Expect: 100-continue\r\n", "X: "+strings.Repeat("x", 20<<10)+"\r\n",
			"X-Forwarded-For: 127.0.0.1\r\n", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n", junk(30)+"\r\n",
		))
	}
	fmt.Fprintf(&r, "Content-Length: %d\r\n\r\n%s", len(body), body)
	all := r.Bytes()
	if rnd.IntN(5) == 0 {
		all = all[:rnd.IntN(len(all))]
	}
	return all
}

// exchange sends bytes, says that they are all, and returns what comes back.
func exchange(addr string, sent []byte) (answer string, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	conn.Write(sent) // who refuses it early hangs up
	conn.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(conn)
	return string(b), nil
}
