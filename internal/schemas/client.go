package schemas

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"invalidator/cdc/envelope"
)

// Options say where the registry is.
type Options struct {
	URL      string // of Confluent's API: http://host:8081, or Apicurio's http://host:8080/apis/ccompat/v7
	User     string // empty: no login
	Password string
	TLS      *tls.Config   // nil: the system's roots
	Timeout  time.Duration // of one request; 0: DefaultTimeout
}

const (
	// DefaultTimeout is short, since a partition does nothing else meanwhile.
	DefaultTimeout = 2 * time.Second
	// patience is how long an unknown schema may still turn up: a record may overtake its schema on the way between a registry's
	// replicas.
	patience = 10 * time.Second
	// forget is after how long an unknown schema is asked for again: somebody may have put it back.
	forget = time.Minute
	// maxKept bounds the schemas kept, and the unknown ids, each; a full one starts anew. A fleet has two a table and version.
	maxKept = 8192
)

// Client is one registry. It is safe for concurrent use.
type Client struct {
	url       string
	confluent *sr.Client
	apicurio  *sr.Client // its own API; nil where the URL does not say where that is
	http      *http.Client
	now       func() time.Time

	mu      sync.Mutex // guards what follows
	texts   map[envelope.SchemaID]string
	unknown map[envelope.SchemaID]miss
}

// miss is a schema that the registry did not know.
type miss struct{ first, last time.Time } // when it was asked

func (m miss) final() bool { return m.last.Sub(m.first) > patience }

// New checks the options; it does not connect.
func New(o Options) (*Client, error) {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.TLS
	web := &http.Client{Timeout: o.Timeout, Transport: transport}
	client := func(url string) (*sr.Client, error) {
		opts := []sr.ClientOpt{
			sr.URLs(url), sr.HTTPClient(web), sr.UserAgent("invalidator"),
			sr.PreReq(func(r *http.Request) error {
				r.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json, */*") // Apicurio's own API gives a schema as it is
				return nil
			}),
		}
		if o.User != "" {
			opts = append(opts, sr.BasicAuth(o.User, o.Password))
		}
		return sr.NewClient(opts...)
	}
	c := &Client{url: o.URL, http: web, now: time.Now, texts: map[envelope.SchemaID]string{}, unknown: map[envelope.SchemaID]miss{}}
	var err error
	if c.confluent, err = client(o.URL); err != nil {
		return nil, fmt.Errorf("making a client of the schema registry %s: %w", o.URL, err)
	}
	if base, _, ok := strings.Cut(o.URL, "/apis/ccompat/"); ok {
		if c.apicurio, err = client(base + "/apis/registry/v2"); err != nil {
			return nil, fmt.Errorf("making a client of the schema registry %s: %w", base, err)
		}
	}
	return c, nil
}

// Unavailable is a schema that could not be fetched for now.
type Unavailable struct {
	ID  envelope.SchemaID
	URL string
	Err error
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("fetching schema %s from the registry %s: %v", e.ID, e.URL, e.Err)
}

func (e *Unavailable) Unwrap() error { return e.Err }

// Retryable implements what envelope asks of an error that is not a record's fault.
func (e *Unavailable) Retryable() bool { return true }

// ErrUnknown says that the registry does not know a schema, and has had the time to.
var ErrUnknown = errors.New("the registry does not know this schema (was its subject deleted, or is the source's registry another one?)")

// errNotYet is an unknown schema that may still turn up.
var errNotYet = errors.New("the registry does not know this schema yet")

// Schema implements envelope.SchemaSource.
func (c *Client) Schema(ctx context.Context, id envelope.SchemaID) (string, error) {
	c.mu.Lock()
	text, ok := c.texts[id]
	missed, seen := c.unknown[id]
	c.mu.Unlock()
	if ok {
		return text, nil
	}
	if seen && missed.final() && c.now().Sub(missed.last) < forget {
		return "", fmt.Errorf("schema %s: %w", id, ErrUnknown)
	}
	s, err := c.fetch(ctx, id)
	switch {
	case err == nil && s.Type != sr.TypeAvro:
		return "", fmt.Errorf("schema %s is %s: only Avro is read", id, s.Type)
	case err == nil && len(s.References) > 0:
		return "", fmt.Errorf("schema %s refers to %s: schemas that refer to others are not read", id, s.References[0].Subject)
	case err == nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		keep(c.texts, id, s.Schema)
		delete(c.unknown, id)
		return s.Schema, nil
	case !isUnknown(err):
		return "", &Unavailable{id, c.url, err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := miss{last: c.now()}
	if m.first = m.last; seen {
		m.first = missed.first
	}
	keep(c.unknown, id, m)
	if m.final() {
		return "", fmt.Errorf("schema %s: %w", id, ErrUnknown)
	}
	return "", &Unavailable{id, c.url, errNotYet}
}

func keep[V any](m map[envelope.SchemaID]V, id envelope.SchemaID, v V) {
	if len(m) >= maxKept {
		clear(m)
	}
	m[id] = v
}

func (c *Client) fetch(ctx context.Context, id envelope.SchemaID) (sr.Schema, error) {
	switch id.Kind {
	case envelope.ConfluentID:
		return c.confluent.SchemaByID(ctx, int(id.Number))
	case envelope.GUID:
		s, err := c.confluent.SchemaByGUID(ctx, id.GUID)
		return s.Schema, err
	}
	if c.apicurio == nil {
		return sr.Schema{}, errors.New("an id of Apicurio's own needs Apicurio's URL, as http://host:8080/apis/ccompat/v7")
	}
	var text []byte
	err := c.apicurio.Do(ctx, http.MethodGet, fmt.Sprintf("/ids/%ss/%d", id.Kind, id.Number), nil, &text)
	return sr.Schema{Schema: string(text)}, err
}

// codeSchemaNotFound is Confluent's error code; Apicurio names what its own API does not find. Another 404 says that the URL is
// wrong, and no schema is to blame for that.
const codeSchemaNotFound = 40403

func isUnknown(err error) bool {
	var re *sr.ResponseError
	return errors.As(err, &re) && re.StatusCode == http.StatusNotFound && (re.ErrorCode == codeSchemaNotFound ||
		bytes.Contains(re.Raw, []byte("ArtifactNotFoundException")) || bytes.Contains(re.Raw, []byte("ContentNotFoundException")))
}

var _ envelope.SchemaSource = (*Client)(nil)
