package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/mapping"
	"invalidator/sink/registry"
)

const (
	// maxPost bounds a request's body, and maxPostKeys its keys: who has more takes the command, or several requests.
	maxPost     = 512 << 10
	maxPostKeys = 1000
	// postTimeout bounds a request, from its first byte to its answer.
	postTimeout = 15 * time.Second
)

// posts are the routes of a worker's admin listener that ask for something to be deleted. Whoever has the token may.
type posts struct {
	conf     *config.Config
	names    changelog.Names
	keys     *changelog.KeyWriter
	requests *changelog.Writer
	set      func() *mapping.Set   // nil: no mappings are in force yet
	view     func() *registry.View // nil: there is no ring yet
	log      *slog.Logger
	timeout  time.Duration // postTimeout
}

// posts are the routes of this worker's admin listener, if it has one, until letGo is called.
func (w *Worker) posts(o changelog.Options, m *mappings, view func() *registry.View) (routes []obs.Route, letGo func(), err error) {
	if w.Config.Admin.Listen == "" {
		return nil, func() {}, nil
	}
	p, err := openPosts(w.Config, o, func() *mapping.Set { return m.today().set }, view, w.Log)
	if err != nil {
		return nil, nil, err
	}
	return p.routes(), p.close, nil
}

// openPosts talks to no broker yet.
func openPosts(c *config.Config, o changelog.Options, set func() *mapping.Set, view func() *registry.View, log *slog.Logger) (*posts, error) {
	names := changelog.NamesFor(c.Kafka.TopicPrefix)
	keys, err := changelog.OpenKeyWriter(o, names.Keys)
	if err != nil {
		return nil, err
	}
	requests, err := changelog.OpenWriter(o)
	if err != nil {
		keys.Close()
		return nil, err
	}
	return &posts{c, names, keys, requests, set, view, log, postTimeout}, nil
}

func (p *posts) close() {
	p.keys.Close()
	p.requests.Close()
}

func (p *posts) routes() []obs.Route {
	return []obs.Route{
		{Pattern: "POST /v1/invalidate", Handler: p.guarded(p.invalidate)},
		{Pattern: "POST /v1/promotions", Handler: p.guarded(p.promotion)},
	}
}

// postError is an answer that is none but its reason.
type postError struct {
	status int
	what   string
	keys   []postedProblem // what is wrong with keys
}

func (e *postError) Error() string { return e.what }

func refused(status int, format string, args ...any) error {
	return &postError{status: status, what: fmt.Sprintf(format, args...)}
}

// postedProblem is a key that cannot be deleted. Its JSON form is stable.
type postedProblem struct {
	At    int    `json:"at"`
	Key   string `json:"key"`
	Error string `json:"error"`
}

// guarded answers a request from whoever may ask: with what do returns and 202, or with {"error": …}. do gets the body, and whence it comes, for people.
func (p *posts) guarded(do func(ctx context.Context, body []byte, from string) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), p.timeout)
		defer cancel()
		status, answer := http.StatusAccepted, any(nil)
		from, err := p.may(r)
		if err == nil {
			var body []byte
			if body, err = readPost(w, r); err == nil {
				answer, err = do(ctx, body, from)
			}
		}
		if err != nil {
			var e *postError
			if !errors.As(err, &e) {
				p.log.Error("answering a request of the admin listener", "path", r.URL.Path, "from", from, "error", err)
				e = &postError{status: http.StatusServiceUnavailable, what: err.Error() + " (some of it may have been written; asking again is harmless)"}
			}
			if status = e.status; status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			answer = struct {
				Error string          `json:"error"`
				Keys  []postedProblem `json:"keys,omitempty"`
			}{e.what, e.keys}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := writeAnswer(w, answer); err != nil {
			p.log.Debug("whoever asked has gone", "path", r.URL.Path, "from", from, "error", err)
		}
	})
}

func writeAnswer(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, numbers and times
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// may says whence a request comes that is allowed.
func (p *posts) may(r *http.Request) (from string, err error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	token := p.conf.Admin.Token.Reveal()
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case token == "":
		return host, refused(http.StatusForbidden, "this listener takes no requests that delete anything: admin.token is not set")
	case err != nil, !p.conf.Admin.Remote && !ip.IsLoopback():
		return host, refused(http.StatusForbidden, "requests that delete something are taken from this machine alone (set admin.remote: true to take them from others; without admin.tls the token then goes over the network as it stands)")
	case !bearer || !obs.Same(token, given):
		return host, refused(http.StatusUnauthorized, "the token is missing, or another one: send Authorization: Bearer TOKEN, with admin.token")
	}
	return host, nil
}

// readPost reads a body, which must come whole and soon.
func readPost(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(postTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, refused(http.StatusBadRequest, "reading the body: %v", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPost))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, refused(http.StatusRequestEntityTooLarge, "the body is over %d bytes: send several requests, or take the command invalidator invalidate", maxPost)
	}
	if err != nil {
		return nil, refused(http.StatusBadRequest, "reading the body: %v", err)
	}
	return body, nil
}

// parsePost reads a body strictly: what is half understood is not done.
func parsePost(body []byte, into any) error {
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return refused(http.StatusBadRequest, "the body is not what it should be: %v", err)
	}
	return nil
}

// asker is who asks, for people: as they say, or whence the request comes.
func asker(by, from string) string {
	if by == "" {
		return "post@" + from
	}
	return by
}

func checkReason(by, reason string) error {
	if len(by) > MaxReason || len(reason) > MaxReason {
		return refused(http.StatusBadRequest, "by and reason have at most %d bytes", MaxReason)
	}
	return nil
}

// invalidatePost is what POST /v1/invalidate takes.
type invalidatePost struct {
	Keys   []string `json:"keys"`
	Base64 [][]byte `json:"keys_base64"` // bytes that are no text
	By     string   `json:"by"`
	Reason string   `json:"reason"`
}

// invalidatePosted is what it answers. Its JSON form is stable.
type invalidatePosted struct {
	Keys      int            `json:"keys"`
	Records   int            `json:"records"`
	At        []WrittenRange `json:"at"`
	Unclaimed []string       `json:"unclaimed,omitempty"` // pools of some of them, which no mapping file in force claims: perhaps a name is misspelt
}

// WrittenRange is where keys were written: other records may lie between. Its JSON form is stable.
type WrittenRange struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"` // the offset behind the last
}

// WrittenRanges are the spans of what was written.
func WrittenRanges(k changelog.KeysWritten) []WrittenRange {
	all := []WrittenRange{}
	for _, s := range k.Spans {
		all = append(all, WrittenRange{s.Topic, s.Number, s.From, s.To})
	}
	return all
}

// invalidate writes keys to the log. What is wrong with any of them is told, and none is written then.
func (p *posts) invalidate(ctx context.Context, body []byte, from string) (any, error) {
	var q invalidatePost
	if err := parsePost(body, &q); err != nil {
		return nil, err
	}
	if err := checkReason(q.By, q.Reason); err != nil {
		return nil, err
	}
	keys := q.Keys
	for _, k := range q.Base64 {
		keys = append(keys, string(k))
	}
	switch set := p.set(); {
	case len(keys) == 0:
		return nil, refused(http.StatusBadRequest, "there are no keys")
	case len(keys) > maxPostKeys:
		return nil, refused(http.StatusRequestEntityTooLarge, "there are %d keys, and a request may have %d: send several, or take the command invalidator invalidate", len(keys), maxPostKeys)
	case set == nil || p.view() == nil:
		return nil, refused(http.StatusServiceUnavailable, "this worker has not begun yet: it has no mappings, or no ring")
	}
	checked := keyRules{p.set(), p.view().Topology.KeyPrefix(), p.conf.Cache.Protocol}.check(keys)
	if len(checked.Problems) > 0 {
		e := &postError{status: http.StatusBadRequest, what: fmt.Sprintf("of %d keys memcached cannot hold %d: none was taken", len(keys), len(checked.Problems))}
		for _, k := range checked.Problems {
			e.keys = append(e.keys, postedProblem{k.At, strings.ToValidUTF8(k.Key, "\uFFFD"), k.What})
		}
		return nil, e
	}
	by := asker(q.By, from)
	written, err := p.keys.Write(ctx, changelog.SentKeys{Keys: checked.Keys, By: by, Reason: q.Reason}, nil)
	if err != nil {
		return nil, err
	}
	p.log.Info("keys were written to the log, to be deleted", "keys", written.Keys, "by", by, "reason", q.Reason)
	answer := invalidatePosted{Keys: written.Keys, Records: written.Records, At: WrittenRanges(written)}
	for _, u := range checked.Unclaimed {
		answer.Unclaimed = append(answer.Unclaimed, u.Pool)
	}
	return answer, nil
}

// shardsOf are those of all ring records that a view knows, sorted.
func shardsOf(v *registry.View) (ids []string) {
	for _, s := range v.Sights {
		for _, shard := range s.Record.Shards {
			ids = append(ids, shard.ID)
		}
		if s.Record.Previous != nil {
			for _, shard := range s.Record.Previous.Shards {
				ids = append(ids, shard.ID)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
