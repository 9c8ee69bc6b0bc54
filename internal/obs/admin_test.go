package obs

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// /healthz is red while somebody must act; /livez never is, nor is anything of a process that has no health to tell.
func TestHealth(t *testing.T) {
	var mu sync.Mutex
	var wrong []string
	for _, tc := range []struct {
		name   string
		health func() []string
	}{
		{"with health", func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(wrong) }},
		{"without", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			l.Close()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- ServeAdmin(ctx, addr, NewRegistry(), tc.health) }()
			get := func(path string) (int, string) {
				t.Helper()
				for deadline := time.Now().Add(10 * time.Second); ; {
					resp, err := http.Get("http://" + addr + path)
					if err == nil {
						defer resp.Body.Close()
						body, err := io.ReadAll(resp.Body)
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
			if code, text := get("/healthz"); code != http.StatusOK || text != "ok\n" {
				t.Errorf("%d %q", code, text)
			}
			mu.Lock()
			wrong = []string{"source shop: gap shop/1", "source orders: no table"}
			mu.Unlock()
			code, text := get("/healthz")
			if red := code == http.StatusServiceUnavailable && text == strings.Join(wrong, "\n")+"\n"; red != (tc.health != nil) {
				t.Errorf("%d %q", code, text)
			}
			if code, text := get("/livez"); code != http.StatusOK || text != "ok\n" {
				t.Errorf("%d %q", code, text)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			http.DefaultClient.CloseIdleConnections()
			wrong = nil
		})
	}
}

// A route is served beside the listener's own paths, by its method alone.
func TestMoreRoutes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- ServeAdmin(ctx, addr, NewRegistry(), nil, Route{"POST /v1/do", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })})
	}()
	ask := func(method, path string) (int, string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			req, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader("it"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
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
	if code, text := ask("POST", "/v1/do"); code != http.StatusOK || text != "it" {
		t.Errorf("%d %q", code, text)
	}
	if code, _ := ask("GET", "/v1/do"); code != http.StatusMethodNotAllowed {
		t.Errorf("got it by GET: %d", code)
	}
	if code, text := ask("GET", "/livez"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("%d %q", code, text)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
