package flush

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/replay"
	"invalidator/sink"
)

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{
		"20000":                                {"", 20000},
		" 2.5e4 ":                              {"", 25000},
		"sum(rate(mysql_reads[1m]))<400000":    {"sum(rate(mysql_reads[1m]))", 400000},
		"sum(a < bool b) < 5":                  {"sum(a < bool b)", 5},
		"http://db.example:9104/load?x=1 <0.8": {"http://db.example:9104/load?x=1", 0.8},
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":          "does not end in a number above 0",
		"many":      "does not end in a number above 0",
		"a<":        "does not end in a number above 0",
		"a<=5":      "does not end in a number above 0",
		"a<0":       "does not end in a number above 0",
		"a<-1":      "does not end in a number above 0",
		"a<NaN":     "does not end in a number above 0",
		"a<Inf":     "does not end in a number above 0",
		"<5":        "says nothing before the <",
		"sum(a)>5":  "does not end in a number above 0",
		"sum(a)<5k": "does not end in a number above 0",
	} {
		if got, err := ParseLimit(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestSignals: what cannot be read is an error, and so above every limit.
func TestSignals(t *testing.T) {
	const prom = `{"status":"success","data":{"resultType":"%s","result":%s}}`
	for name, c := range map[string]struct {
		expr   string // "": a URL
		status int
		body   string
		want   float64
		err    string
	}{
		"a number":                    {"", 200, " 17.5\n", 17.5, ""},
		"no number":                   {"", 200, "seventeen", 0, `"seventeen" is no number`},
		"nothing":                     {"", 200, "", 0, "is no number"},
		"not a number":                {"", 200, "NaN", 0, "is no number"},
		"an error of the URL":         {"", 503, "17", 0, "the URL answers 503 Service Unavailable"},
		"a scalar":                    {"x", 200, fmt.Sprintf(prom, "scalar", `[1796032800.1,"17.5"]`), 17.5, ""},
		"a vector of one":             {"x", 200, fmt.Sprintf(prom, "vector", `[{"metric":{"a":"b"},"value":[1796032800,"3"]}]`), 3, ""},
		"a vector of none":            {"x", 200, fmt.Sprintf(prom, "vector", `[]`), 0, "gives 0 series, not one number (put sum() around it)"},
		"a vector of two":             {"x", 200, fmt.Sprintf(prom, "vector", `[{"value":[1,"3"]},{"value":[1,"4"]}]`), 0, "gives 2 series"},
		"a matrix":                    {"x", 200, fmt.Sprintf(prom, "matrix", `[]`), 0, `gives a "matrix", not a number`},
		"a scalar that is none":       {"x", 200, fmt.Sprintf(prom, "scalar", `[1,"NaN"]`), 0, "is no number"},
		"a value without a text":      {"x", 200, fmt.Sprintf(prom, "scalar", `[1,2]`), 0, "none of Prometheus's"},
		"a vector that is none":       {"x", 200, fmt.Sprintf(prom, "vector", `{}`), 0, "none of Prometheus's"},
		"an expression that is wrong": {"x", 400, `{"status":"error","errorType":"bad_data","error":"parse error"}`, 0, `asking Prometheus: it answers "error": parse error`},
		"a gateway in between":        {"x", 502, "<html>", 0, "asking Prometheus: it answers 502 Bad Gateway"},
		"a page":                      {"x", 200, "<html>", 0, "none of Prometheus's"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Value
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked.Store(req.URL.String())
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			}))
			defer server.Close()
			o := Options{HTTP: server.Client(), Prometheus: server.URL + "/prom/"}
			expr, url := "sum(rate(a{b=\"c\"}[1m]))", "/prom/api/v1/query?query=sum%28rate%28a%7Bb%3D%22c%22%7D%5B1m%5D%29%29"
			if c.expr == "" {
				expr, url = server.URL+"/load", "/load"
			}
			signal, err := o.signalOf(expr, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := signal(t.Context())
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, %v", got, err)
			}
			if asked.Load() != url {
				t.Errorf("asked %v, want %s", asked.Load(), url)
			}
		})
	}
}

func TestSignalsThatHangOrAreAway(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	defer server.Close()
	o := Options{HTTP: server.Client()}
	signal, err := o.signalOf(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := signal(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*loadTimeout {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	server.Close()
	if _, err := signal(t.Context()); err == nil {
		t.Error("a server that is away has a load")
	}
	if _, err := o.signalOf("http://[", nil); err == nil {
		t.Error("a URL that is none has a load")
	}
}

// TestMeter: the larger of fills and misses a second, of all nodes that answer and were not restarted.
func TestMeter(t *testing.T) {
	inBubble(t, func(r *rig) {
		at := map[string]*sink.NodeStats{"a": {Pid: 1}, "b": {Pid: 1}, "c": {Pid: 1}, "d": {Pid: 1}}
		down := map[string]error{}
		m := &meter{nodes: func() []string { return []string{"a", "b", "c", "d"} }, last: map[string]reading{}, ask: func(_ context.Context, node string) (sink.NodeStats, error) {
			return *at[node], down[node]
		}}
		look := func() (float64, error) {
			r.after(2 * time.Second)
			m.look(r.Context())
			return m.load(r.Context())
		}
		expect := func(what string, want float64, why string) {
			r.Helper()
			got, err := look()
			if why == "" && (err != nil || got != want) || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				r.Errorf("%s: %v, %v", what, got, err)
			}
		}
		if limit, ok := m.limit(); ok || limit != minLimit {
			r.Errorf("a limit of %v before the first look", limit)
		}
		expect("the first look", 0, "have not been read twice yet")
		at["a"].CmdSet, at["b"].CmdSet, at["c"].GetMisses = 100, 300, 1000
		expect("misses", 500, "")
		at["a"].CmdSet += 3000
		expect("fills", 1500, "")
		at["a"], at["b"].CmdSet = &sink.NodeStats{Pid: 2, CmdSet: 99_999}, 310
		expect("a is another process", 5, "")
		down["a"], down["b"] = errBroker, errBroker
		at["c"].GetMisses += 20
		expect("two of four are away", 10, "")
		down["c"] = errBroker
		expect("three of four are away", 0, "only 1 of 4 nodes tell their counters")
		down = map[string]error{}
		at["c"].GetMisses += 40
		expect("they are back: over all of the time", 10, "")
		down["a"], down["b"], down["c"] = &sink.NoDumpError{Node: "a"}, &sink.NoDumpError{Node: "b"}, &sink.NoDumpError{Node: "c"}
		at["d"].CmdSet += 200
		expect("what has no counters does not count", 100, "")
		if limit, ok := m.limit(); !ok || limit != minLimit {
			r.Errorf("a limit of %v", limit)
		}
		at["d"].CmdSet += 60_000
		look()
		if limit, _ := m.limit(); limit < 2*30_000/8 || limit > 2*30_000/7+2000 {
			r.Errorf("a limit of %v", limit)
		}
		r.after(2 * time.Minute)
		look()
		look()
		if limit, _ := m.limit(); limit != minLimit {
			r.Errorf("what was over a minute ago still counts: %v", limit)
		}
	})
}

// TestGuard tells how a flush goes on and waits with the load.
func TestGuard(t *testing.T) {
	fill := func(r *rig) { r.nodes.fill("a:1 b:1 c:1", "old", keys("user", 6000)...) }
	for name, do := range map[string]func(r *rig, at *atomic.Int64){
		"it does not begin above the limit": func(r *rig, at *atomic.Int64) {
			fill(r)
			at.Store(600)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "x<500" })
			r.start()
			r.after(time.Minute)
			if len(r.nodes.dumps()) > 0 || len(r.nodes.deletes()) > 0 {
				r.Errorf("%d dumps, %d deletes", len(r.nodes.dumps()), len(r.nodes.deletes()))
			}
			if waits := r.waits(); len(waits) < 3 || waits[0] != "a:1: the load is 600, above its limit of 500" {
				r.Errorf("%q", waits)
			}
			if r.metric("load") != 600 || r.metric("limit") != 500 {
				r.Errorf("load %v, limit %v", r.metric("load"), r.metric("limit"))
			}
			at.Store(500)
			r.done("f1")
			r.expect(map[string]string{"a": "", "b": "", "c": ""})
		},
		"its first look is enough, and nothing waits for a second": func(r *rig, _ *atomic.Int64) {
			r.nodes.fill("a:1", "old", "user:1")
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "x<500" })
			r.start()
			r.done("f1")
			if marks, deletes := r.nodes.marked(), r.nodes.deletes(); !deletes[0].Equal(marks[0]) {
				r.Errorf("the first delete comes %s after the marks", deletes[0].Sub(marks[0]))
			}
		},
		"it stands still in the middle of a part": func(r *rig, at *atomic.Int64) {
			fill(r)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad, q.Pace, q.Slices = "x<500", 100, 3 })
			r.start()
			r.after(30 * time.Second)
			at.Store(501)
			r.after(2 * time.Second)
			n := len(r.nodes.deletes())
			r.after(time.Minute)
			if n == 0 || len(r.nodes.deletes()) != n {
				r.Errorf("%d deletes, %d a minute later", n, len(r.nodes.deletes()))
			}
			at.Store(3)
			r.after(2 * time.Second)
			if len(r.nodes.deletes()) == n {
				r.Error("it does not go on")
			}
			r.done("f1")
		},
		"a load that cannot be read is above": func(r *rig, at *atomic.Int64) {
			fill(r)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad, q.Slices = "x<500", 9 })
			r.start()
			r.after(15 * time.Second)
			at.Store(-1)
			r.after(2 * time.Second)
			n := len(r.nodes.deletes())
			r.after(time.Minute)
			if n == 0 || len(r.nodes.deletes()) != n {
				r.Errorf("%d deletes, %d a minute later", n, len(r.nodes.deletes()))
			}
			if waits := strings.Join(r.waits(), "\n"); !strings.Contains(waits, "the load cannot be read, which counts as above its limit: asking Prometheus: it answers 500") {
				r.Errorf("%q", waits)
			}
			at.Store(3)
			r.done("f1")
		},
		"it has to be low for all of the refill": func(r *rig, at *atomic.Int64) {
			r.nodes.fill("a:1", "old", keys("user", 4000)...)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad, q.Slices, q.Pace, q.Refill = "x<500", 6, 1_000_000, 20 })
			r.start()
			for len(r.nodes.deletes()) == 0 {
				r.after(time.Second)
			}
			first := len(r.nodes.deletes())
			for range 10 { // each time for a moment, before the 20 s are over
				r.after(15 * time.Second)
				at.Store(900)
				r.after(2 * time.Second)
				at.Store(3)
			}
			if n := len(r.nodes.deletes()); n != first || n == 4000 {
				r.Errorf("%d deletes, then %d", first, n)
			}
			r.done("f1")
		},
		"it is cancelled while it waits": func(r *rig, at *atomic.Int64) {
			at.Store(900)
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "x<500" })
			r.start()
			r.after(time.Minute)
			r.say(replay.Cancel, "f1")
			r.after(2 * time.Second)
			if res, _ := r.result("f1"); res.Error != "cancelled by bob@ops" {
				r.Errorf("%+v", res)
			}
		},
		"a load that is low just while another flush dumps keeps that from nothing": func(r *rig, at *atomic.Int64) {
			r.o.HTTP = &http.Client{Transport: answer(func() (int, string) {
				load := 900
				if r.nodes.isDumped("c:1") {
					load = 3
				}
				return 200, fmt.Sprintf(`{"status":"success","data":{"resultType":"scalar","result":[1,"%d"]}}`, load)
			})}
			r.nodes.fill("a:1 c:1", "old", keys("user", 6000)...)
			for _, node := range []string{"a:1", "c:1"} {
				r.nodes.node(node).slow = 20 * time.Second
			}
			r.ask("f1", replay.Target{Node: "a:1"}, func(q *replay.Request) { q.MaxLoad, q.Refill = "x<500", 2 })
			r.ask("f2", replay.Target{Node: "c:1"}, func(q *replay.Request) { q.Slices = 9 })
			r.start()
			r.done("f2")
			r.expect(map[string]string{"c": ""})
		},
		"what this worker cannot ask for cannot be read": func(r *rig, at *atomic.Int64) {
			at.Store(900)
			r.nodes.fill("a:1", "old", "user:1")
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "x<500" })
			r.start()
			r.after(30 * time.Second)
			r.stop()
			prometheus := r.o.Prometheus
			r.o.Prometheus = ""
			at.Store(3)
			r.start()
			r.after(time.Minute)
			if waits := strings.Join(r.waits(), "\n"); !strings.Contains(waits, "set replay.flush.prometheus") {
				r.Error(waits)
			}
			r.expect(map[string]string{"a": "user:1=old"})
			r.stop()
			r.o.Prometheus = prometheus
			r.start()
			r.done("f1")
		},
		"others go on while it waits": func(r *rig, at *atomic.Int64) {
			at.Store(900)
			r.nodes.fill("a:1 b:1", "old", "user:1", "feed:1")
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "x<500" })
			r.ask("f2", replay.Target{Pool: "feed"})
			r.start()
			r.done("f2")
			r.expect(map[string]string{"a": "user:1=old", "b": "user:1=old"})
			at.Store(3)
			r.done("f1")
			r.expect(map[string]string{"a": "", "b": ""})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var at atomic.Int64
				r.o.Prometheus = "http://prometheus:9090"
				r.o.HTTP = &http.Client{Transport: answer(func() (int, string) {
					if at.Load() < 0 {
						return 500, ""
					}
					return 200, fmt.Sprintf(`{"status":"success","data":{"resultType":"scalar","result":[1,"%d"]}}`, at.Load())
				})}
				do(r, &at)
			})
		})
	}
}

// answer is a monitor without a network.
type answer func() (int, string)

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	status, body := a()
	w.WriteHeader(status)
	w.WriteString(body)
	return w.Result(), nil
}

// TestTheLimitThatNobodySays is twice what the nodes had to bear in the minute before.
func TestTheLimitThatNobodySays(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, node := range []string{"a:1", "b:1", "c:1"} {
			r.nodes.node(node).sets = 2000
		}
		r.start()
		r.after(2 * time.Minute)
		r.ask("f1", replay.Target{Pool: "user"})
		r.done("f1")
		if limit := r.jobs()[0].Limit; limit < 11_990 || limit > 12_010 {
			r.Errorf("a limit of %v", limit)
		}
	})
}

// TestFillsAreTheLoad: what a flush itself causes makes it wait.
func TestFillsAreTheLoad(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", keys("user", 4000)...)
		r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad, q.Slices, q.Pace = "500", 6, 1_000_000 })
		r.start()
		for len(r.nodes.deletes()) == 0 {
			r.after(time.Second)
		}
		n := len(r.nodes.deletes())
		r.nodes.change("a:1", func(n *fakeNode) { n.sets = 5000 })
		r.after(time.Minute)
		if got := len(r.nodes.deletes()); got != n || got == 4000 {
			r.Errorf("%d deletes, then %d", n, got)
		}
		r.nodes.change("a:1", func(n *fakeNode) { n.sets, n.pid, n.since = 0, n.pid+1, time.Now() })
		r.done("f1")
	})
}
