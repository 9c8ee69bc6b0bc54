package obs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// NewRegistry makes the process's metrics registry, with Go's and the process's own collectors.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Route is one more path of the admin listener.
type Route struct {
	Pattern string // as http.ServeMux has it: "POST /v1/invalidate"
	Handler http.Handler
}

// Admin is what the admin listener serves.
type Admin struct {
	Listen  string // host:port; empty: nothing is served
	Metrics prometheus.Gatherer
	Ready   func() []string // why the process does not serve, a line each; asked each time; nil: it always does
	PProf   bool            // /debug/pprof/ too
	Routes  []Route
	TLS     *tls.Config // nil: none is spoken
	Gate    Gate
	Log     *slog.Logger // nil: nobody is told of a request that could not be answered
}

const healthy, ready = "/-/healthy", "/-/ready"

// ServeAdmin serves /metrics, /-/healthy, /-/ready, and more, until ctx ends.
//
// /-/healthy says that the process turns, and nothing else: a supervisor starts anew who does not answer it. /-/ready is 503, with
// the reasons, while the process does not serve.
func ServeAdmin(ctx context.Context, a Admin) error {
	if a.Listen == "" {
		<-ctx.Done()
		return nil
	}
	ln, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return fmt.Errorf("listening for admin: %w (choose another admin.listen)", err)
	}
	ln = netutil.LimitListener(ln, maxConns)
	if a.TLS != nil {
		ln = tls.NewListener(ln, a.TLS)
	}
	if a.Log == nil {
		a.Log = slog.New(slog.DiscardHandler)
	}
	srv := &http.Server{
		Handler: a.handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug), // whoever connects can fill it
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving admin: %w", err)
	}
	return nil
}

func (a Admin) handler() http.Handler {
	h := a.Gate.handler(a.mux())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if e := recover(); e != nil {
				a.Log.Error("a request of the admin listener could not be answered", "path", r.URL.Path, "panic", e, "stack", string(debug.Stack()))
				panic(http.ErrAbortHandler)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func (a Admin) mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET "+healthy, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+ready, a.serveReady)
	if a.PProf {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // also the profiles by their names
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol) // so the pprof tool asks
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	for _, r := range a.Routes {
		mux.Handle(r.Pattern, r.Handler)
	}
	return mux
}

func (a Admin) serveReady(w http.ResponseWriter, _ *http.Request) {
	var why []string
	if a.Ready != nil {
		why = a.Ready()
	}
	if len(why) == 0 {
		fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, line := range why {
		fmt.Fprintln(w, line)
	}
}
