package page

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"invalidator/internal/obs"
	"invalidator/mapping"
	"invalidator/sink/registry"
)

// Source is what a page shows.
type Source struct {
	Open     func(ctx context.Context) (FleetReader, error)
	View     func() *registry.View // nil, or gives nil: this process has no ring
	Mappings func() *mapping.Set   // nil, or gives nil: it has no mappings
	Version  string
}

//go:embed views assets
var files embed.FS

// Page serves itself. Close it.
type Page struct {
	s     Source
	looks *looks
	views map[string]*template.Template
}

// New makes a page, which reads nothing before somebody looks.
func New(s Source) *Page {
	p := &Page{s: s, looks: newLooks(s.Open), views: map[string]*template.Template{}}
	for _, v := range views {
		p.views[v.Name] = template.Must(template.New("layout.html").Funcs(funcs).ParseFS(files, "views/layout.html", "views/"+v.Name+".html"))
	}
	return p
}

// Close lets go of the connections. Who looks meanwhile is answered.
func (p *Page) Close() { p.looks.close() }

// view is a page's name, which is its path too, and what the navigation calls it.
type view struct{ Name, Title string }

var views = []view{
	{"overview", "Overview"}, {"sources", "Sources"}, {"partitions", "Partitions"}, {"nodes", "Nodes"}, {"work", "Replays and flushes"},
	{"mappings", "Mappings"}, {"losses", "Losses"}, {"playground", "Playground"},
}

const (
	maxForm     = 64 << 10         // bytes of what is typed into the playground
	formTimeout = 5 * time.Second  // to send it
	eventsEvery = 2 * time.Second  // between two looks for who has a page open
	eventsLast  = 15 * time.Minute // then the browser asks again
)

// Routes are the page's paths on the admin listener.
func (p *Page) Routes() []obs.Route {
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		panic(err) // it is embedded
	}
	routes := []obs.Route{
		{Pattern: "GET /{$}", Handler: p.safe(p.show("overview"))},
		{Pattern: "GET /events", Handler: p.safe(p.events)},
		{Pattern: "POST /playground", Handler: p.safe(p.show("playground"))},
		{Pattern: "GET /assets/", Handler: p.safe(http.StripPrefix("/assets/", http.FileServerFS(assets)).ServeHTTP)},
	}
	for _, v := range views[1:] {
		routes = append(routes, obs.Route{Pattern: "GET /" + v.Name, Handler: p.safe(p.show(v.Name))})
	}
	return routes
}

// safe has a browser load nothing but what is ours, and keep nothing.
func (p *Page) safe(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cache-Control", "no-store")
		h(w, r)
	})
}

// shown is what a template gets.
type shown struct {
	Views   []view
	View    view
	Version string
	Now     time.Time
	Err     error // of the look: what is shown is older
	At      time.Time
	Fleet   fleetView
	Ring    ringView
	Files   []fileView
	Play    *play
}

func (p *Page) show(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l := p.looks.now(r.Context())
		s := shown{Views: views, Version: p.s.Version, Now: time.Now(), Err: l.err, At: l.at, Fleet: newFleetView(l.Fleet, l.err)}
		for _, v := range views {
			if v.Name == name {
				s.View = v
			}
		}
		switch name {
		case "nodes":
			s.Ring = p.ring(&l.Fleet, r.URL.Query().Get("key"))
		case "mappings":
			s.Files = p.files(&l.Fleet)
		case "playground":
			if r.Method == http.MethodPost {
				http.NewResponseController(w).SetReadDeadline(time.Now().Add(formTimeout)) // an unsupported one has the server's own
				r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			}
			if err := r.ParseForm(); err != nil {
				http.Error(w, "what was typed is too long, or no form", http.StatusBadRequest)
				return
			}
			s.Play = p.play(r.PostForm)
		}
		var b bytes.Buffer
		if err := p.views[name].Execute(&b, s); err != nil {
			http.Error(w, fmt.Sprintf("rendering %s: %v", name, err), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(b.Bytes()) // who does not read it any more is gone
	}
}

// events says each time that the fleet is another, as server-sent events, whose data is a number for what is seen.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	ctx, cancel := context.WithTimeout(r.Context(), eventsLast)
	defer cancel()
	t := time.NewTicker(eventsEvery)
	defer t.Stop()
	for last := uint64(0); ; {
		l := p.looks.now(ctx)
		if seen := seenOf(&l); seen != last {
			last = seen
			if _, err := fmt.Fprintf(w, "data: %d\n\n", seen); err != nil || c.Flush() != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// seenOf is equal for looks that show the same.
func seenOf(l *look) uint64 {
	h := fnv.New64a()
	json.MarshalWrite(h, l.Fleet, json.Deterministic(true)) // what cannot be written counts as the same
	fmt.Fprint(h, l.err)
	return h.Sum64()
}
