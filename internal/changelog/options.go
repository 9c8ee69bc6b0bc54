package changelog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	defaultClientID = "invalidator"

	// connectTimeout bounds Connect. An operator at a terminal waits no longer, and a TCP dial into a firewall that drops
	// packets would wait for minutes.
	connectTimeout = 10 * time.Second

	// dialTimeout leaves room for a second broker within connectTimeout, where the first drops packets.
	dialTimeout = 4 * time.Second

	// metadataMaxAge is how soon a client sees a new topic or partition that matches what it reads: within 10 s is the
	// promise, so half of it.
	metadataMaxAge = 5 * time.Second
)

// Mechanism is how a client signs in.
type Mechanism string

const (
	NoSASL      Mechanism = ""
	Plain       Mechanism = "plain"
	OAuthBearer Mechanism = "oauthbearer"
	ScramSHA256 Mechanism = "scram-sha-256"
	ScramSHA512 Mechanism = "scram-sha-512"
)

// SASL is an account at the brokers. The zero SASL signs in nowhere.
type SASL struct {
	Mechanism Mechanism
	User      string
	Password  func() string // asked at each login, since it may change. With OAuthBearer the token
}

// Options say how to reach the brokers. It is a plain value: copy it, pass it on.
type Options struct {
	Brokers  []string    // host:port; any one that answers is enough to find the others
	TLS      *tls.Config // nil: no TLS
	SASL     SASL
	ClientID string       // default "invalidator"; brokers show it in their logs and quotas
	Log      *slog.Logger // the client library's own messages: its errors as warnings, the rest as debug. nil: none
	Metrics  *Metrics     // nil: none are kept

	// Dial opens a connection in place of TCP, for an in-memory broker. nil: TCP, or TLS where TLS is set.
	Dial func(ctx context.Context, network, host string) (net.Conn, error)
}

// Client makes a client without talking to any broker. No protocol version is pinned. What extra sets wins.
func (o Options) Client(extra ...kgo.Opt) (*kgo.Client, error) {
	if len(o.Brokers) == 0 {
		return nil, &ConnectError{Err: errors.New("no broker is named"), Hint: "set kafka.brokers"}
	}
	id := o.ClientID
	if id == "" {
		id = defaultClientID
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(id),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.DialTimeout(dialTimeout),
		kgo.DisableClientMetrics(), // a broker that hangs would hold up each client's end for them, by a second
	}
	if o.Log != nil {
		opts = append(opts, kgo.WithLogger(kgoLogger{o.Log}))
	}
	if o.Metrics != nil {
		opts = append(opts, kgo.WithHooks(o.Metrics))
	}
	switch {
	case o.Dial != nil:
		opts = append(opts, kgo.Dialer(o.Dial))
	case o.TLS != nil:
		opts = append(opts, kgo.DialTLSConfig(o.TLS))
	}
	if o.SASL.Mechanism != NoSASL {
		m, err := o.SASL.mechanism()
		if err != nil {
			return nil, o.connectError(err, "kafka.sasl.mechanism is plain, scram-sha-256, scram-sha-512 or oauthbearer")
		}
		opts = append(opts, kgo.SASL(m))
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, o.connectError(err, "check the kafka section of the config")
	}
	return cl, nil
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case Plain:
		return plain.Plain(func(context.Context) (plain.Auth, error) { return plain.Auth{User: s.User, Pass: s.Password()}, nil }), nil
	case ScramSHA256:
		return scram.Sha256(s.scram), nil
	case ScramSHA512:
		return scram.Sha512(s.scram), nil
	case OAuthBearer:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) { return oauth.Auth{Token: s.Password()}, nil }), nil
	}
	return nil, fmt.Errorf("unknown SASL mechanism %q", s.Mechanism)
}

func (s SASL) scram(context.Context) (scram.Auth, error) {
	return scram.Auth{User: s.User, Pass: s.Password()}, nil
}

// Connect is Client, and then one answer from a broker within ten seconds, and a look at its protocol versions. Its error
// is a *ConnectError.
func (o Options) Connect(ctx context.Context, extra ...kgo.Opt) (*kgo.Client, error) {
	cl, err := o.Client(extra...)
	if err != nil {
		return nil, err
	}
	pctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = cl.Ping(pctx)
	// The versions are asked for in either case: a client pinned too low fails the ping in words that do not say so.
	if err == nil || !isNetwork(err) {
		if verr := checkVersions(pctx, cl); verr != nil {
			err = verr
		}
	}
	if err != nil {
		cl.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, o.connectError(err, o.connectHint(err))
	}
	return cl, nil
}

// ConnectError is why no broker could be used. Its text is one line.
type ConnectError struct {
	Brokers []string
	Err     error
	Hint    string
}

func (e *ConnectError) Error() string {
	s := "kafka"
	if len(e.Brokers) > 0 {
		s += " at " + strings.Join(e.Brokers, ", ")
	}
	s += ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *ConnectError) Unwrap() error { return e.Err }

func (o Options) connectError(err error, hint string) error {
	return &ConnectError{Brokers: o.Brokers, Err: err, Hint: hint}
}

func (o Options) connectHint(err error) string {
	var (
		dns      *net.DNSError
		eof      *kgo.ErrFirstReadEOF
		record   tls.RecordHeaderError
		cert     *tls.CertificateVerificationError
		versions *VersionError
	)
	switch {
	case errors.As(err, &versions):
		return "use a broker from Kafka 2.1 on, and pin no protocol version"
	case errors.As(err, &dns):
		return "the name does not resolve: check kafka.brokers"
	case errors.As(err, &eof):
		return "the broker hung up at once: its listener may want TLS or SASL, or not want it; check kafka.tls and kafka.sasl"
	case errors.As(err, &record):
		return "that listener does not speak TLS: check the port, or remove kafka.tls"
	case errors.As(err, &cert):
		return "the broker's certificate is not trusted: check kafka.tls"
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism),
		errors.Is(err, io.EOF) && o.SASL.Mechanism != NoSASL: // some brokers hang up on a wrong password
		return "check kafka.sasl: mechanism, user and password"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer: check kafka.brokers, firewalls, and that the broker advertises an address that is reachable from here"
	}
	return "is the broker running? check kafka.brokers"
}

func isNetwork(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, context.DeadlineExceeded)
}

// kgoLogger hands the client library's messages to slog. What it calls a warning (a cut connection, a retry) its owner
// reports with a hint when it lasts, so here it is debug.
type kgoLogger struct{ log *slog.Logger }

func (l kgoLogger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelError
}

func (l kgoLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}
