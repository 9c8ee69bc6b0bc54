package schemas

import (
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
	Timeout  time.Duration // of one schema, with those that it refers to; 0: DefaultTimeout
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
	timeout   time.Duration
	now       func() time.Time

	mu       sync.Mutex // guards what follows
	texts    map[envelope.SchemaID]string
	versions map[version]sr.Schema // that others refer to
	unknown  map[envelope.SchemaID]miss
}

// miss is a schema that the registry did not know.
type miss struct {
	first, last time.Time // when it was asked
	why         error
}

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
	c := &Client{url: o.URL, http: web, timeout: o.Timeout, now: time.Now,
		texts: map[envelope.SchemaID]string{}, versions: map[version]sr.Schema{}, unknown: map[envelope.SchemaID]miss{}}
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

// ErrNotAvro is a schema of another kind: JSON Schema, Protobuf.
var ErrNotAvro = errors.New("only Avro is read")

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
		return "", fmt.Errorf("schema %s: %w", id, missed.why)
	}
	text, err := c.fetch(ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	var re *refused
	switch {
	case err == nil:
		keep(c.texts, id, text)
		delete(c.unknown, id)
		return text, nil
	case errors.As(err, &re):
		return "", fmt.Errorf("schema %s: %w", id, re.error)
	case !isUnknown(err):
		return "", &Unavailable{id, c.url, err}
	}
	m := miss{last: c.now(), why: ErrUnknown}
	if m.first = m.last; seen {
		m.first = missed.first
	}
	notYet := errNotYet
	var nr *noReference
	if errors.As(err, &nr) {
		m.why, notYet = fmt.Errorf("%w: %w", nr, ErrUnknown), fmt.Errorf("%w: %w", nr, errNotYet)
	}
	keep(c.unknown, id, m)
	if m.final() {
		return "", fmt.Errorf("schema %s: %w", id, m.why)
	}
	return "", &Unavailable{id, c.url, notYet}
}

// refused is a schema that the registry gave, and that is not read.
type refused struct{ error }

func (e *refused) Unwrap() error { return e.error }

func keep[K comparable, V any](m map[K]V, id K, v V) {
	if len(m) >= maxKept {
		clear(m)
	}
	m[id] = v
}

// fetch is the text of a schema, with what it refers to.
func (c *Client) fetch(ctx context.Context, id envelope.SchemaID) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	s, err := c.schema(ctx, id)
	if err != nil {
		return "", err
	}
	if s.Type != sr.TypeAvro {
		return "", &refused{fmt.Errorf("it is %s: %w", s.Type, ErrNotAvro)}
	}
	return c.joined(ctx, s)
}

func (c *Client) schema(ctx context.Context, id envelope.SchemaID) (sr.Schema, error) {
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

var _ envelope.SchemaSource = (*Client)(nil)
