package obs

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Who gives what may see what: a probe needs nothing, whoever reads needs either token, and another site's script gets nothing changed.
func TestGate(t *testing.T) {
	changed := 0
	a := Admin{Metrics: NewRegistry(), Routes: []Route{
		{Pattern: "POST /change", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { changed++ })},
	}}
	tokens := func() []string { return []string{"reads", "deletes"} }
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	basic := func(token string) func(*http.Request) { return func(r *http.Request) { r.SetBasicAuth("ann", token) } }
	for name, tc := range map[string]struct {
		gate         Gate
		method, path string
		with         func(*http.Request)
		want         int
	}{
		"nothing is asked for":             {Gate{}, "GET", "/metrics", nil, 200},
		"no read token is set":             {Gate{Tokens: func() []string { return []string{"", "deletes"} }}, "GET", "/metrics", nil, 200},
		"no token":                         {Gate{Tokens: tokens}, "GET", "/metrics", nil, 401},
		"an empty one":                     {Gate{Tokens: tokens}, "GET", "/metrics", bearer(""), 401},
		"another one":                      {Gate{Tokens: tokens}, "GET", "/metrics", bearer("reads "), 401},
		"who reads":                        {Gate{Tokens: tokens}, "GET", "/metrics", bearer("reads"), 200},
		"who deletes reads too":            {Gate{Tokens: tokens}, "GET", "/metrics", bearer("deletes"), 200},
		"a browser":                        {Gate{Tokens: tokens}, "GET", "/metrics", basic("reads"), 200},
		"a browser with another":           {Gate{Tokens: tokens}, "GET", "/metrics", basic("ann"), 401},
		"the token as user":                {Gate{Tokens: tokens}, "GET", "/metrics", func(r *http.Request) { r.SetBasicAuth("reads", "") }, 401},
		"a probe of life":                  {Gate{Tokens: tokens, Certificate: true}, "GET", "/-/healthy", nil, 200},
		"a probe of readiness":             {Gate{Tokens: tokens, Certificate: true}, "GET", "/-/ready", nil, 200},
		"by way of a probe":                {Gate{Tokens: tokens}, "GET", "/-/healthy/../../metrics", nil, 401},
		"no certificate":                   {Gate{Certificate: true}, "GET", "/metrics", nil, 403},
		"no certificate, but the token":    {Gate{Certificate: true, Tokens: tokens}, "GET", "/metrics", bearer("deletes"), 403},
		"what is not there is no secret's": {Gate{Tokens: tokens}, "GET", "/nothing", nil, 401},
		"a change":                         {Gate{Tokens: tokens}, "POST", "/change", bearer("deletes"), 200},
		"a change without":                 {Gate{Tokens: tokens}, "POST", "/change", nil, 401},
		"a change from another site": {Gate{Tokens: tokens}, "POST", "/change", func(r *http.Request) {
			r.SetBasicAuth("ann", "deletes")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			a.Gate = tc.gate
			changed = 0
			r := httptest.NewRequest(tc.method, "http://admin.test"+tc.path, nil)
			if tc.with != nil {
				tc.with(r)
			}
			w := httptest.NewRecorder()
			a.handler().ServeHTTP(w, r)
			if w.Code != tc.want || (changed == 1) != (tc.want == 200 && tc.method == "POST") {
				t.Errorf("%d, want %d; changed %d times: %s", w.Code, tc.want, changed, w.Body)
			}
			if (w.Code == 401) != strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic ") {
				t.Errorf("%d with WWW-Authenticate %q", w.Code, w.Header().Get("WWW-Authenticate"))
			}
		})
	}
}

// A body that is too long is not read to its end.
func TestBodyIsBounded(t *testing.T) {
	var failed error
	a := Admin{Metrics: NewRegistry(), Routes: []Route{{Pattern: "POST /take", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		failed = r.ParseForm()
	})}}}
	r := httptest.NewRequest("POST", "/take", strings.NewReader(strings.Repeat("x", maxBody+1)))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	a.handler().ServeHTTP(httptest.NewRecorder(), r)
	if failed == nil || !strings.Contains(failed.Error(), "too large") {
		t.Errorf("reading it: %v", failed)
	}
}
