package obs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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

// ServeAdmin serves /metrics, /healthz and /livez on addr until ctx ends, and more. An empty addr serves nothing.
//
// /healthz is red (503) while health, which is asked each time, returns lines: what a person must act on. That is for alerts;
// starting the process anew mends none of it, so that a supervisor asks /livez. A nil health is never red.
func ServeAdmin(ctx context.Context, addr string, metrics prometheus.Gatherer, health func() []string, more ...Route) error {
	if addr == "" {
		<-ctx.Done()
		return nil
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listening for admin: %w (choose another admin.listen)", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		var wrong []string
		if health != nil {
			wrong = health()
		}
		if len(wrong) == 0 {
			fmt.Fprintln(w, "ok")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, line := range wrong {
			fmt.Fprintln(w, line)
		}
	})
	for _, r := range more {
		mux.Handle(r.Pattern, r.Handler)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving admin: %w", err)
	}
	return nil
}
