package schemas

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"go.uber.org/goleak"

	"invalidator/cdc/envelope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const record = `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`

func number(n int) envelope.SchemaID {
	return envelope.SchemaID{Kind: envelope.ConfluentID, Number: int64(n)}
}

// rig is a registry that counts what it is asked, and fails as it is told.
type rig struct {
	fake     *srfake.Registry
	front    *httptest.Server
	asked    atomic.Int64
	fail     atomic.Pointer[http.HandlerFunc]
	client   *Client
	advanced time.Duration
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{fake: srfake.New()}
	t.Cleanup(r.fake.Close)
	r.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		if f := r.fail.Load(); f != nil {
			(*f)(w, req)
			return
		}
		r.fake.Handler().ServeHTTP(w, req)
	}))
	t.Cleanup(r.front.Close)
	o.URL = r.front.URL + o.URL
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() time.Time { return time.Unix(1796028134, 0).Add(r.advanced) }
	t.Cleanup(c.http.CloseIdleConnections)
	r.client = c
	return r
}

func (r *rig) failing(f http.HandlerFunc) { r.fail.Store(&f) }

func (r *rig) add(t *testing.T, subject string, s sr.Schema) int {
	t.Helper()
	id, _, err := r.fake.RegisterSchema(subject, s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func retryable(err error) bool {
	var r interface{ Retryable() bool }
	return errors.As(err, &r) && r.Retryable()
}

// A schema is fetched once.
func TestI7SchemaIsKept(t *testing.T) {
	r := newRig(t, Options{})
	id := r.add(t, "a-value", sr.Schema{Schema: record})
	for range 3 {
		text, err := r.client.Schema(t.Context(), number(id))
		if err != nil || text != record {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	subject, _ := r.fake.GetSchema("a-value", 1)
	if text, err := r.client.Schema(t.Context(), envelope.SchemaID{Kind: envelope.GUID, GUID: subject.GUID}); err != nil || text != record {
		t.Errorf("by GUID %q: %q, %v", subject.GUID, text, err)
	}
}

// Whatever is the registry's fault, or the configuration's, is worth another try, and works once it is mended.
func TestI7RegistryThatFails(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"down":             func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"slow":             func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"broken":           func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusInternalServerError) },
		"busy":             func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusTooManyRequests) },
		"a wrong password": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusUnauthorized) },
		"a wrong URL":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error_code":404}`, http.StatusNotFound) },
		"another server":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{Timeout: 50 * time.Millisecond})
			id := r.add(t, "a-value", sr.Schema{Schema: record})
			r.failing(fail)
			for range 2 {
				if _, err := r.client.Schema(t.Context(), number(id)); !retryable(err) || !strings.Contains(err.Error(), r.front.URL) {
					t.Fatalf("%v", err)
				}
				r.advanced += time.Hour // however long it lasts
			}
			r.fail.Store(nil)
			r.client.http.Timeout, r.client.timeout = 5*time.Second, 5*time.Second
			if text, err := r.client.Schema(t.Context(), number(id)); err != nil || text != record {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// An unknown id may still turn up for a while; then its records are parked, and the registry is left in peace for a minute.
func TestI7UnknownID(t *testing.T) {
	r := newRig(t, Options{})
	ask := func() error {
		_, err := r.client.Schema(t.Context(), number(7))
		return err
	}
	for range 3 {
		if err := ask(); !retryable(err) {
			t.Fatalf("at first: %v", err)
		}
		r.advanced += patience / 3
	}
	r.advanced += time.Second
	for range 3 {
		if err := ask(); retryable(err) || !errors.Is(err, ErrUnknown) {
			t.Fatalf("after %s: %v", patience, err)
		}
	}
	if n := r.asked.Load(); n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
	r.advanced += forget
	if err := ask(); retryable(err) || !errors.Is(err, ErrUnknown) {
		t.Fatalf("after a minute: %v", err)
	}
	if n := r.asked.Load(); n != 5 {
		t.Errorf("asked %d times, want 5", n)
	}
	r.fake.SeedSchema("late-value", 1, 7, sr.Schema{Schema: record})
	r.advanced += forget
	if err := ask(); err != nil {
		t.Errorf("when it was put back: %v", err)
	}
}

func TestI7OtherSchemasAreRefusedByName(t *testing.T) {
	r := newRig(t, Options{})
	for want, s := range map[string]sr.Schema{
		"JSON":     {Schema: `{"type":"object"}`, Type: sr.TypeJSON},
		"PROTOBUF": {Schema: `syntax = "proto3"; message A {}`, Type: sr.TypeProtobuf},
	} {
		id := r.add(t, want+"-of", s)
		if _, err := r.client.Schema(t.Context(), number(id)); err == nil || retryable(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Apicurio's own ids are asked of its own API, which stands beside Confluent's.
func TestI7ApicurioIDs(t *testing.T) {
	r := newRig(t, Options{URL: "/apis/ccompat/v7", User: "u", Password: "p"})
	r.failing(func(w http.ResponseWriter, req *http.Request) {
		if user, password, _ := req.BasicAuth(); user != "u" || password != "p" {
			t.Errorf("login %s %s", user, password)
		}
		switch req.URL.Path {
		case "/apis/registry/v2/ids/globalIds/5", "/apis/registry/v2/ids/contentIds/5":
			_, _ = w.Write([]byte(record))
		default:
			http.Error(w, `{"error_code":404,"name":"ArtifactNotFoundException"}`, http.StatusNotFound)
		}
	})
	for _, kind := range []envelope.IDKind{envelope.GlobalID, envelope.ContentID} {
		if text, err := r.client.Schema(t.Context(), envelope.SchemaID{Kind: kind, Number: 5}); err != nil || text != record {
			t.Errorf("%s: %q, %v", kind, text, err)
		}
	}
	unknown := envelope.SchemaID{Kind: envelope.GlobalID, Number: 6}
	if _, err := r.client.Schema(t.Context(), unknown); !errors.Is(err, errNotYet) {
		t.Errorf("%v", err)
	}
	r = newRig(t, Options{})
	if _, err := r.client.Schema(t.Context(), unknown); !retryable(err) || !strings.Contains(err.Error(), "/apis/ccompat/v7") {
		t.Errorf("without Apicurio's URL: %v; want a hint", err)
	}
}

func TestContextEnds(t *testing.T) {
	r := newRig(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.client.Schema(ctx, number(1)); !errors.Is(err, context.Canceled) || !retryable(err) {
		t.Errorf("%v", err)
	}
}
