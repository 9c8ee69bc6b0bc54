package obs

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A process is ready once nothing stands against it; it is healthy all the time.
func TestHealthyAndReady(t *testing.T) {
	var r Readiness
	srv := httptest.NewServer(Admin{Metrics: NewRegistry(), Ready: r.Lines}.mux())
	defer srv.Close()
	var stands []string
	for _, tc := range []struct {
		name string
		set  func()
		code int
		text string
	}{
		{"nothing was said", func() {}, http.StatusOK, "ok\n"},
		{"it starts", func() { r.Waits("waits for the ring") }, http.StatusServiceUnavailable, "waits for the ring\n"},
		{"it serves", func() { r.Ask(func() []string { return stands }) }, http.StatusOK, "ok\n"},
		{"trouble", func() { stands = []string{"source shop: gap shop/1", "source orders: no table"} }, http.StatusServiceUnavailable, "source shop: gap shop/1\nsource orders: no table\n"},
		{"the trouble is over", func() { stands = nil }, http.StatusOK, "ok\n"},
	} {
		tc.set()
		if code, text := ask(t, "GET", srv.URL+"/-/ready"); code != tc.code || text != tc.text {
			t.Errorf("%s: ready says %d %q", tc.name, code, text)
		}
		if code, text := ask(t, "GET", srv.URL+"/-/healthy"); code != http.StatusOK || text != "ok\n" {
			t.Errorf("%s: healthy says %d %q", tc.name, code, text)
		}
	}
}

// A process that has nothing to tell of itself is ready.
func TestReadyWithoutReasons(t *testing.T) {
	srv := httptest.NewServer(Admin{Metrics: NewRegistry()}.mux())
	defer srv.Close()
	if code, text := ask(t, "GET", srv.URL+"/-/ready"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("%d %q", code, text)
	}
}

// Profiles show what is in memory: they are there only for whoever wants them.
func TestPProf(t *testing.T) {
	for _, on := range []bool{false, true} {
		srv := httptest.NewServer(Admin{Metrics: NewRegistry(), PProf: on}.mux())
		defer srv.Close()
		for _, path := range []string{"", "heap?debug=1", "goroutine?debug=1", "cmdline", "symbol"} {
			if code, _ := ask(t, "GET", srv.URL+"/debug/pprof/"+path); (code == http.StatusOK) != on {
				t.Errorf("pprof %v: /debug/pprof/%s says %d", on, path, code)
			}
		}
	}
}

// A route is served beside the listener's own paths, by its method alone.
func TestMoreRoutes(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	srv := httptest.NewServer(Admin{Metrics: NewRegistry(), Routes: []Route{{"POST /v1/do", echo}}}.mux())
	defer srv.Close()
	if code, text := ask(t, "POST", srv.URL+"/v1/do"); code != http.StatusOK || text != "it" {
		t.Errorf("%d %q", code, text)
	}
	if code, _ := ask(t, "GET", srv.URL+"/v1/do"); code != http.StatusMethodNotAllowed {
		t.Errorf("got it by GET: %d", code)
	}
	if code, text := ask(t, "GET", srv.URL+"/metrics"); code != http.StatusOK || !strings.Contains(text, "go_goroutines") {
		t.Errorf("metrics: %d", code)
	}
}

// The listener is there until its context ends; an address that is taken is an error which says what to do.
func TestServeAdmin(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := ServeAdmin(t.Context(), Admin{Listen: addr, Metrics: NewRegistry()}); err == nil || !strings.Contains(err.Error(), "choose another admin.listen") {
		t.Errorf("an address that is taken: %v", err)
	}
	l.Close()
	for _, listen := range []string{addr, ""} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ServeAdmin(ctx, Admin{Listen: listen, Metrics: NewRegistry()}) }()
		if listen != "" {
			if code, text := ask(t, "GET", "http://"+listen+"/-/healthy"); code != http.StatusOK || text != "ok\n" {
				t.Errorf("%d %q", code, text)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("at %q: %v", listen, err)
		}
	}
}

// ask asks until somebody answers.
func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("it"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(body)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
