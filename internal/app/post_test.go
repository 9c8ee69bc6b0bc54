package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

const postToken = "a long token"

const postAdmin = "admin: {listen: 'ADMIN', token: '" + postToken + "'}\nreplay: {window: 40s}\n"

// post asks a worker's listener, and returns the answer.
func (b *sentBench) post(path, token, body string) (status int, answer string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://"+b.admin+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		b.t.Errorf("%s is answered as %q", path, kind)
	}
	if (resp.StatusCode == http.StatusUnauthorized) != (resp.Header.Get("WWW-Authenticate") == "Bearer") {
		b.t.Errorf("%d with WWW-Authenticate %q", resp.StatusCode, resp.Header.Get("WWW-Authenticate"))
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// control are the records on the control topic.
func (b *sentBench) control() (all []replay.Record) {
	b.t.Helper()
	o := changelog.Options{Brokers: b.conf.Kafka.Brokers}
	err := changelog.ReadTopic(b.t.Context(), o, changelog.NamesFor("").Control, time.Time{}, false, func(r changelog.TopicRecord) error {
		rec, err := replay.DecodeControl(r.Value)
		if err != nil {
			return err
		}
		if q, ok := rec.(replay.Request); ok && string(r.Key) == q.ID {
			all = append(all, q)
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// Keys that are posted are deleted as those of the command are; the answer says where they lie, and whose pool is nobody's.
func TestPostInvalidate(t *testing.T) {
	b := newSentBench(t, false, postAdmin)
	for _, key := range []string{"app:user:1", "app:user:1#2", "app:usr:1", "app:user:\xff"} {
		b.primary.Set(key, "stale")
		b.replica.Set(key, "stale")
	}
	status, answer := b.post("/v1/invalidate", postToken, `{"keys":["user:1","usr:1","user:1"],"keys_base64":["dXNlcjr/"],"by":"batch","reason":"prices"}`)
	var got invalidatePosted
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusAccepted || got.Keys != 3 || got.Records == 0 || len(got.At) == 0 || !cmp.Equal(got.Unclaimed, []string{"usr"}) {
		t.Fatalf("%d %s", status, answer)
	}
	waitFor(t, "the keys to go", func() bool {
		for _, key := range []string{"app:user:1", "app:user:1#2", "app:usr:1", "app:user:\xff"} {
			if _, there := b.primary.Get(key); there {
				return false
			}
			if _, there := b.replica.Get(key); there {
				return false
			}
		}
		return true
	})
	if !strings.Contains(b.log.String(), "by=batch") {
		t.Errorf("the log does not say who asked: %s", b.log.String())
	}
}

// What cannot be meant is refused as a whole, with the reason, and nothing is written.
func TestPostsAreRefused(t *testing.T) {
	b := newSentBench(t, false, postAdmin)
	many := `"k:` + strings.Join(numbers(1001), `","k:`) + `"`
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		path, token, body string
		status            int
		want              string
	}{
		{"/v1/invalidate", "", `{"keys":["user:1"]}`, http.StatusUnauthorized, "Authorization: Bearer TOKEN"},
		{"/v1/invalidate", "another", `{"keys":["user:1"]}`, http.StatusUnauthorized, "another one"},
		{"/v1/promotions", "another", `{"shard":"s00"}`, http.StatusUnauthorized, "another one"},
		{"/v1/invalidate", postToken, ``, http.StatusBadRequest, "not what it should be"},
		{"/v1/invalidate", postToken, `{}`, http.StatusBadRequest, "there are no keys"},
		{"/v1/invalidate", postToken, `{"key":["user:1"]}`, http.StatusBadRequest, "unknown"},
		{"/v1/invalidate", postToken, `{"keys":["user:1"],"keys":["user:2"]}`, http.StatusBadRequest, "duplicate"},
		{"/v1/invalidate", postToken, `{"keys":["user:1"]} {}`, http.StatusBadRequest, "not what it should be"},
		{"/v1/invalidate", postToken, "{\"keys\":[\"user:\xff\"]}", http.StatusBadRequest, "UTF-8"},
		{"/v1/invalidate", postToken, `{"keys":["user:1","user:a b",""]}`, http.StatusBadRequest, `of 3 keys memcached cannot hold 2: none was taken","keys":[{"at":1,"key":"user:a b","error":"a space or a control character"},{"at":2`},
		{"/v1/invalidate", postToken, `{"keys":[` + many + `]}`, http.StatusRequestEntityTooLarge, "1001 keys"},
		{"/v1/invalidate", postToken, `{"keys":["user:1"],"reason":"` + strings.Repeat("r", 1001) + `"}`, http.StatusBadRequest, "at most 1000 bytes"},
		{"/v1/invalidate", postToken, `{"keys":["` + strings.Repeat("k", maxPost) + `"]}`, http.StatusRequestEntityTooLarge, "bytes: send several requests"},
		{"/v1/promotions", postToken, `{"shard":"s0"}`, http.StatusBadRequest, `did you mean \"s00\"?`},
		{"/v1/promotions", postToken, `{"shard":"elsewhere"}`, http.StatusBadRequest, "there are: s00"},
		{"/v1/promotions", postToken, `{}`, http.StatusBadRequest, "in no ring record"},
		{"/v1/promotions", postToken, `{"shard":"s00","at":"` + future + `"}`, http.StatusBadRequest, "in the future"},
		{"/v1/promotions", postToken, `{"shard":"s00","at":"yesterday"}`, http.StatusBadRequest, "not what it should be"},
		{"/v1/promotions", postToken, `{"shard":"s00","epoch":7}`, http.StatusBadRequest, "unknown"},
	} {
		status, answer := b.post(c.path, c.token, c.body)
		var e struct{ Error string }
		if err := json.Unmarshal([]byte(answer), &e); err != nil || e.Error == "" || status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s %.80s: %d %.300s, want %d with %q", c.path, c.body, status, answer, c.status, c.want)
		}
	}
	b.wantNothingWritten()
}

func (b *sentBench) wantNothingWritten() {
	b.t.Helper()
	if all := b.control(); len(all) > 0 {
		b.t.Errorf("requests were written: %+v", all)
	}
	err := changelog.ReadTopic(b.t.Context(), changelog.Options{Brokers: b.conf.Kafka.Brokers}, changelog.NamesFor("").Keys, time.Time{}, false, func(r changelog.TopicRecord) error {
		b.t.Errorf("keys were written: %s", r.Value)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// Without a token nobody may ask, whatever they send; nor from another machine, where the configuration does not say so.
func TestWhoMayPost(t *testing.T) {
	b := newSentBench(t, false, "admin: {listen: 'ADMIN'}\n")
	for _, token := range []string{"", postToken} {
		if status, answer := b.post("/v1/invalidate", token, `{"keys":["user:1"]}`); status != http.StatusForbidden || !strings.Contains(answer, "admin.token is not set") {
			t.Errorf("without a token: %d %s", status, answer)
		}
	}
	b.wantNothingWritten()
	for _, c := range []struct {
		from   string
		remote bool
		want   int // OK: whoever may ask is told that the worker has not begun
	}{
		{"127.0.0.1:5", false, http.StatusServiceUnavailable}, {"[::1]:5", false, http.StatusServiceUnavailable},
		{"10.1.2.3:5", false, http.StatusForbidden}, {"[fe80::1]:5", false, http.StatusForbidden}, {"nowhere", true, http.StatusForbidden},
		{"10.1.2.3:5", true, http.StatusServiceUnavailable},
	} {
		p := &posts{conf: &config.Config{Admin: config.Admin{Token: config.NewSecret(postToken), Remote: c.remote}},
			set: func() *mapping.Set { return nil }, view: func() *registry.View { return nil }, log: quiet, timeout: time.Second}
		for _, route := range p.routes() {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(map[bool]string{true: `{"keys":["a"]}`, false: `{"shard":"s00"}`}[strings.Contains(route.Pattern, "invalidate")]))
			r.RemoteAddr = c.from
			r.Header.Set("Authorization", "Bearer "+postToken)
			w := httptest.NewRecorder()
			route.Handler.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%s from %s: %d %s, want %d", route.Pattern, c.from, w.Code, w.Body, c.want)
			}
		}
	}
}

// A broker that is away is told of, and that asking again does no harm.
func TestPostWhileKafkaIsAway(t *testing.T) {
	c := parse(t, t.TempDir(), strings.ReplaceAll(postAdmin, "ADMIN", "127.0.0.1:1"))
	o := changelog.Options{Brokers: []string{"127.0.0.1:1"}}
	f, _ := mapping.Parse("f.yaml", []byte(sentMapping))
	set, _ := mapping.NewSet([]*mapping.File{f})
	record, err := sink.ParseRecord("ring.json", []byte(`{"epoch":7,"shards":[{"id":"s00","primary":{"addr":"a:1"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	topology, err := sink.NewTopology(record)
	if err != nil {
		t.Fatal(err)
	}
	view := &registry.View{Topology: topology, Hot: sink.NewHotKeys(0, nil), Sights: []registry.Sight{{Record: record}}}
	p, err := openPosts(c, o, func() *mapping.Set { return set }, func() *registry.View { return view }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.timeout = 200 * time.Millisecond
	for _, route := range p.routes() {
		body := map[bool]string{true: `{"keys":["user:1"]}`, false: `{"shard":"s00"}`}[strings.Contains(route.Pattern, "invalidate")]
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:5"
		r.Header.Set("Authorization", "Bearer "+postToken)
		w := httptest.NewRecorder()
		route.Handler.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "asking again is harmless") {
			t.Errorf("%s: %d %s", route.Pattern, w.Code, w.Body)
		}
	}
}

// A promotion is a replay of what was issued in the window before it, and a flush of that shard's keys which no row gives. Told again it is the same one.
func TestPostPromotion(t *testing.T) {
	b := newSentBench(t, false, postAdmin)
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	body := fmt.Sprintf(`{"shard":"s00","at":%q,"by":"manager","reason":"10.0.1.5 died"}`, at.Format(time.RFC3339Nano))
	var ids []string
	for range 2 {
		status, answer := b.post("/v1/promotions", postToken, body)
		var got promotionPosted
		if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusAccepted || !got.At.Equal(at) || len(got.Requests) != 2 {
			t.Fatalf("%d %s", status, answer)
		}
		ids = append(ids, got.Requests...)
	}
	if ids[0] != ids[2] || ids[1] != ids[3] || ids[0] == ids[1] {
		t.Errorf("ids %q", ids)
	}
	var got []string
	for _, r := range b.control()[:2] {
		q := r.(replay.Request)
		q.At = time.Time{}
		value, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(value))
	}
	ms := at.UnixMilli()
	want := []string{
		fmt.Sprintf(`{"id":"promoted/s00/%d","at":"0001-01-01T00:00:00Z","by":"manager","reason":"10.0.1.5 died","action":"replay","target":{"shard":"s00"},"window":"issued","from":%q}`,
			ms, at.Add(-40*time.Second).Format(time.RFC3339Nano)),
		fmt.Sprintf(`{"id":"promoted/s00/%d/feed","at":"0001-01-01T00:00:00Z","by":"manager","reason":"10.0.1.5 died","action":"flush","target":{"shard":"s00","pool":"feed"},"cause":{"what":"promotion","epoch":7}}`, ms),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if status, answer := b.post("/v1/promotions", postToken, `{"shard":"s00"}`); status != http.StatusAccepted || strings.Contains(answer, ids[0]) || !strings.Contains(answer, "promoted/s00/") {
		t.Errorf("now: %d %s", status, answer)
	}
}

// Of pools that say so the keys are marked stale, as after a promotion that the ring record tells.
func TestPostedPromotionMarksStale(t *testing.T) {
	f, problems := mapping.Parse("f.yaml", []byte("version: 1\nteam: t\nreaders: meta\nunderivable: [page, feed]\non_promotion: {page: stale}\n"))
	if f == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	all := promotionRequests(promotionPost{Shard: "s00", At: time.UnixMilli(1)}, "x", time.Now(), time.Second, 7, set)
	if len(all) != 3 || all[1].Target.Pool != "feed" || all[1].Stale || all[2].Target.Pool != "page" || !all[2].Stale || all[2].StaleFor != 30 {
		t.Errorf("%+v", all)
	}
	for _, r := range all {
		if _, err := replay.Encode(r); err != nil {
			t.Error(err)
		}
	}
}

// A worker that takes keys has to write them, and check asks whether it may.
func TestWhoPostsWritesKeys(t *testing.T) {
	for text, want := range map[string]bool{"admin: {listen: 'a:1', token: t}": true, "admin: {listen: 'a:1'}": false} {
		r := rightsFor(parse(t, t.TempDir(), text), nil, nil)
		if got := slices.Contains(r.Writes, "invalidator.keys"); got != want || !slices.Contains(r.Reads, "invalidator.keys") {
			t.Errorf("%s: reads %q, writes %q", text, r.Reads, r.Writes)
		}
	}
}

// The records that a person writes themselves, with any producer, are taken as those of the command.
func TestKeysOfAnyProducer(t *testing.T) {
	b := newSentBench(t, false, "")
	b.primary.Set("app:user:1", "stale")
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.conf.Kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	value := bytes.TrimSpace([]byte(` {"v":1,"keys":["user:1"],"by":"batch"} `))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: changelog.NamesFor("").Keys, Key: []byte("user:1"), Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the key to go", func() bool { _, there := b.primary.Get("app:user:1"); return !there })
}
