package page

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/gap"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/registry"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// fakeFleet gives what it is told to.
type fakeFleet struct {
	mu     sync.Mutex
	fleet  app.Fleet
	err    error
	reads  atomic.Int64
	opened atomic.Int64
	closed atomic.Int64
}

func (f *fakeFleet) Read(context.Context) (app.Fleet, error) {
	f.reads.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fleet, f.err
}

func (f *fakeFleet) Close() { f.closed.Add(1) }

func (f *fakeFleet) open(context.Context) (FleetReader, error) {
	f.opened.Add(1)
	return f, nil
}

// calm is a fleet with which all is well.
func calm() *fakeFleet {
	return &fakeFleet{fleet: app.Fleet{
		Group:     "invalidator",
		Processes: []app.Process{{ID: "w-1", Role: "worker", Host: "host-1", Version: "v1", At: noon}},
		Lags:      []app.PartitionLag{{Topic: "shop.shop.users", Partition: 3, Committed: 10, End: 10, Source: "shop"}},
	}}
}

const users = "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}']}\n"

func setOf(t testing.TB, text string) *mapping.Set {
	t.Helper()
	f, problems := mapping.Parse("users.yaml", []byte(text))
	if f == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	return set
}

func viewOf(t testing.TB) *registry.View {
	t.Helper()
	rec, err := sink.ParseRecord("ring.json", []byte(`{"epoch":7,"shards":[{"id":"s00","primary":{"addr":"10.0.1.5:11211","zone":"a"},"replicas":[{"addr":"10.0.2.9:11211","zone":"b"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	top, err := sink.NewTopology(rec)
	if err != nil {
		t.Fatal(err)
	}
	return &registry.View{Topology: top, Hot: sink.NewHotKeys(1, map[string]int{"user:7": 2})}
}

// served is a page of a worker, behind a mux as the admin listener has one.
func served(t testing.TB, f *fakeFleet) http.Handler {
	t.Helper()
	set, view := setOf(t, users), viewOf(t)
	p := New(Source{Open: f.open, View: func() *registry.View { return view }, Mappings: func() *mapping.Set { return set }, Version: "v1"})
	t.Cleanup(p.Close)
	return muxOf(p)
}

func muxOf(p *Page) http.Handler {
	mux := http.NewServeMux()
	for _, r := range p.Routes() {
		mux.Handle(r.Pattern, r.Handler)
	}
	return mux
}

func get(t testing.TB, h http.Handler, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func wantIn(t testing.TB, body string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in\n%s", want, body)
		}
	}
}

func TestOverviewOfACalmFleet(t *testing.T) {
	wantIn(t, get(t, served(t, calm()), "/"), "The cache is fresh", "under 10 s", "every change is deleted on every copy as it comes", "worker w-1")
}

// The one number, the one colour, and why.
func TestOverview(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeFleet)
		wants  []string
	}{
		"a partition is behind": {func(f *fakeFleet) { f.fleet.Lags[0].Lag, f.fleet.Lags[0].Age = 42, 95 }, []string{"The cache is behind", "1m35s", "written 1m35s ago"}},
		"a node owes":           {func(f *fakeFleet) { f.fleet.Owing = []app.Owing{{Owes: "node", Name: "10.0.2.9:11211"}} }, []string{"The cache is behind", "1 node owes deletes"}},
		"somebody must act": {func(f *fakeFleet) {
			f.fleet.Findings = []app.Finding{{Severity: "error", Where: "source shop", What: "it stands"}, {Severity: "warning", Where: "topic x", What: "compacted"}}
		}, []string{"A person must act", "1 thing needs a person", "source shop", "it stands", "Worth knowing", "compacted"}},
		"nobody can say": {func(f *fakeFleet) { f.err = errors.New("no broker <answers>") }, []string{"A person must act", "not known", "no broker &lt;answers&gt;"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := calm()
			c.change(f)
			wantIn(t, get(t, served(t, f), "/"), c.wants...)
		})
	}
}

func TestViews(t *testing.T) {
	f := calm()
	f.fleet.Lags[0].Lag = 5
	f.fleet.Owing = []app.Owing{{Owes: "node", Name: "10.0.2.9:11211", Records: 12, Since: noon, Open: true}}
	f.fleet.Processes = append(f.fleet.Processes, app.Process{ID: "f-1", Role: "feeder", Host: "host-2", Wrong: []string{"source shop stands"}})
	f.fleet.Processes[0].Mappings.Failing = []string{"mappings.d/users.yaml"}
	f.fleet.Works = []app.Work{{ID: "r1", Kind: "replay", State: app.WorkRunning, Unit: app.UnitRecords, Done: 30, All: 120, Keys: 7, By: "ann@ops", Reason: "a mended template"}}
	f.fleet.Gaps = []*gap.Case{{Gap: gap.Gap{ID: "shop/1", Source: "shop", Why: "the slot was lost", Pools: []string{"user"}, Seen: noon}}}
	f.fleet.Parked = app.Parked{Records: 3, Last: noon}
	h := served(t, f)
	for path, wants := range map[string][]string{
		"/sources":                               {"shop", "source shop stands", "f-1"},
		"/partitions":                            {"shop.shop.users", "under 10 s"},
		"/nodes":                                 {"Ring record 7", "10.0.1.5:11211", "Zone b", `class="node late"`, "owes 12 records", "12, growing"},
		"/nodes?key=user:7":                      {"<code>user:7</code> is on shard s00", "a hot key with 2 copies more", "user:7#2"},
		"/nodes?key=" + strings.Repeat("x", 251): {"note stands"},
		"/work":                                  {"r1", `value="25"`, "30 of 120 records", "ann@ops: a mended template"},
		"/mappings":                              {"profiles", "users.yaml", "an older text, in worker w-1"},
		"/losses":                                {"the slot was lost", "Pools: user", "3 records are on the dead-letter topic"},
		"/playground":                            {"Nothing is deleted"},
		"/assets/style.css":                      {"prefers-color-scheme"},
	} {
		t.Run(path, func(t *testing.T) { wantIn(t, get(t, h, path), wants...) })
	}
}

// A feeder has neither a ring nor all mappings, and says so.
func TestPageOfAFeeder(t *testing.T) {
	p := New(Source{Open: calm().open, Version: "v1"})
	defer p.Close()
	h := muxOf(p)
	wantIn(t, get(t, h, "/nodes"), "This process has no ring")
	wantIn(t, get(t, h, "/mappings"), "no mappings in force")
	wantIn(t, post(t, h, url.Values{"table": {"shop.users"}, "after": {`{"id": 1}`}}), "ask a worker")
}

func post(t testing.TB, h http.Handler, form url.Values) string {
	t.Helper()
	r := httptest.NewRequest("POST", "/playground", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestPlayground(t *testing.T) {
	h := served(t, calm())
	row := url.Values{"table": {"shop.users"}, "before": {`{"id": 7}`}, "after": {`{"id": 8}`}}
	with := func(name, text string) url.Values {
		v := url.Values{name: {text}}
		for k := range row {
			v[k] = row[k]
		}
		return v
	}
	for name, c := range map[string]struct {
		form  url.Values
		wants []string
	}{
		"a row":              {row, []string{"2 keys", "user:7", "user:8", "10.0.2.9:11211 <code>user:7#2</code>"}},
		"a row of no table":  {url.Values{"table": {"users"}, "after": {`{"id": 7}`}}, []string{"note stands"}},
		"of no mapping":      {url.Values{"table": {"shop.orders"}, "after": {`{"id": 7}`}}, []string{"It gives no key"}},
		"a record":           {url.Values{"record": {`{"before":null,"after":{"id":9},"source":{"connector":"mysql","name":"shop","db":"shop","table":"users"},"op":"c"}`}}, []string{"1 key<", "user:9"}},
		"no record":          {url.Values{"record": {"<script>"}}, []string{"note stands"}},
		"another text":       {with("file", strings.Replace(users, "user:{id}", "user:{id}:v2", 1)), []string{"user:7:v2", "What it changes", "user:{id}:v2"}},
		"a text with faults": {with("file", strings.Replace(users, "user:{id}", "user:{id", 1)), []string{"The text", "line 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := post(t, h, c.form)
			wantIn(t, body, c.wants...)
			if strings.Contains(body, "<script>") && !strings.Contains(body, `<script src="/assets/live.js" defer></script>`) {
				t.Error("what was typed is not escaped")
			}
		})
	}
}

// What is too long is refused before it is read, and what is no form too.
func TestPlaygroundIsBounded(t *testing.T) {
	h := served(t, calm())
	r := httptest.NewRequest("POST", "/playground", strings.NewReader("record="+strings.Repeat("x", maxForm)))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("%d", w.Code)
	}
}

// A browser may load what is ours and nothing else, and keeps nothing.
func TestPageIsClosed(t *testing.T) {
	h := served(t, calm())
	for _, path := range []string{"/", "/nodes", "/assets/live.js"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %q", path, csp)
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s is kept", path)
		}
		if body := w.Body.String(); strings.Contains(body, " style=") || strings.Contains(body, " onclick=") || strings.Contains(body, "http://") || strings.Contains(body, "https://") {
			t.Errorf("%s has something inline, or of elsewhere", path)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(method, "/nodes", nil)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// However many look, there is a look a second; when nobody has for a while, the reader is closed, and opened for who comes next.
func TestLooksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := calm()
		l := newLooks(f.open)
		for range 50 {
			go l.now(t.Context())
		}
		synctest.Wait()
		if n := f.reads.Load(); n != 1 {
			t.Errorf("%d looks", n)
		}
		time.Sleep(lookEvery)
		l.now(t.Context())
		if n := f.reads.Load(); n != 2 {
			t.Errorf("%d looks a second later", n)
		}
		time.Sleep(idleAfter)
		synctest.Wait()
		if f.closed.Load() != 1 {
			t.Error("it is open, and nobody looks")
		}
		l.now(t.Context())
		l.close()
		if f.opened.Load() != 2 || f.closed.Load() != 2 {
			t.Errorf("opened %d times, closed %d", f.opened.Load(), f.closed.Load())
		}
	})
}

// A look that fails leaves what the last good one said, and tells that.
func TestLookThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := calm()
		l := newLooks(f.open)
		defer l.close()
		l.now(t.Context())
		f.err = errors.New("no broker answers")
		time.Sleep(lookEvery)
		if got := l.now(t.Context()); got.err == nil || got.Group != "invalidator" {
			t.Errorf("%+v", got)
		}
	})
}

// Who has a page open is told when there is something new, and of nothing else.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := calm()
		p := New(Source{Open: f.open})
		defer p.Close()
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.events(&stream{w: w, header: http.Header{}}, httptest.NewRequestWithContext(ctx, "GET", "/events", nil))
			w.Close()
		}()
		lines := make(chan string, 10)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(r); s.Scan(); {
				if s.Text() != "" {
					lines <- s.Text()
				}
			}
		}()
		first := <-lines
		time.Sleep(5 * eventsEvery)
		synctest.Wait()
		if len(lines) > 0 {
			t.Errorf("nothing is new, and %q came", <-lines)
		}
		f.mu.Lock()
		f.fleet.Parked.Records = 1
		f.mu.Unlock()
		time.Sleep(2 * eventsEvery)
		if second := <-lines; second == first || !strings.HasPrefix(second, "data: ") {
			t.Errorf("%q after %q", second, first)
		}
		cancel()
		<-done
		for range lines {
		}
	})
}

// stream is a response that is read as it is written.
type stream struct {
	w      io.Writer
	header http.Header
}

func (s *stream) Header() http.Header         { return s.header }
func (s *stream) WriteHeader(int)             {}
func (s *stream) Write(b []byte) (int, error) { return s.w.Write(b) }
func (s *stream) Flush()                      {}

// Whatever is asked for, it is answered, and nothing of it comes back as it is.
func FuzzPage(f *testing.F) {
	f.Add("key", "user:1", "", "")
	f.Add("key", "<script>alert(1)</script>", `{"id":1}`, "version: 1")
	h := served(f, calm())
	f.Fuzz(func(t *testing.T, name, value, record, file string) {
		r := httptest.NewRequest("GET", "/nodes?"+url.Values{name: {value}}.Encode(), nil)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code >= 500 || strings.Contains(w.Body.String(), "<script>alert") {
			t.Fatal(w.Code, w.Body)
		}
		r = httptest.NewRequest("POST", "/playground", strings.NewReader(url.Values{"record": {record}, "file": {file}, "table": {value}, "after": {record}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w = httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code >= 500 || strings.Contains(w.Body.String(), "<script>alert") {
			t.Fatal(w.Code, fmt.Sprintf("%.2000s", w.Body))
		}
	})
}
