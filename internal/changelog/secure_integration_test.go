//go:build integration

package changelog_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/test/certs"
	"invalidator/test/integration/harness"
)

// A real broker takes each way of signing in over TLS, and a certificate; what is wrong is refused, and no password is shown. A password
// or a token that has changed counts from the next connection on.
func TestRealBrokerOverTLS(t *testing.T) {
	ours, others, dir := certs.New(t), certs.New(t), t.TempDir()
	logins, shows := harness.FreeAddr(t), harness.FreeAddr(t)
	b := harness.NewTLSBroker(t, logins, shows, ours.Certify(dir, "broker", time.Hour).Both, ours.File)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	must(t, err)
	defer cl.Close()
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		users, err := kadm.NewClient(cl).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "us", Mechanism: m, Iterations: 4096, Password: "x"}})
		must(t, err)
		must(t, users.Error())
	}

	as := func(m changelog.Mechanism, password string) changelog.SASL {
		return changelog.SASL{Mechanism: m, User: "us", Password: func() string { return password }}
	}
	connects := func(addr string, c *tls.Config, s changelog.SASL) error {
		cl, err := changelog.Options{Brokers: []string{addr}, TLS: c, SASL: s}.Connect(t.Context())
		if err == nil {
			cl.Close()
		}
		return err
	}
	right := ours.Client(ours.Certify(dir, "us", time.Hour))
	another := ours.Client()
	another.ServerName = "kafka.test"
	for name, tc := range map[string]struct {
		addr string
		tls  *tls.Config
		sasl changelog.SASL
		want string // of the error; empty: there is none
	}{
		"plain":                          {logins, ours.Client(), as(changelog.Plain, "x"), ""},
		"scram 256":                      {logins, ours.Client(), as(changelog.ScramSHA256, "x"), ""},
		"scram 512":                      {logins, ours.Client(), as(changelog.ScramSHA512, "x"), ""},
		"a token":                        {logins, ours.Client(), as(changelog.OAuthBearer, token("us", time.Hour)), ""},
		"a certificate":                  {shows, right, changelog.SASL{}, ""},
		"wrong, plain":                   {logins, ours.Client(), as(changelog.Plain, "hunter2"), "check kafka.sasl"},
		"wrong, scram 256":               {logins, ours.Client(), as(changelog.ScramSHA256, "hunter2"), "check kafka.sasl"},
		"wrong, scram 512":               {logins, ours.Client(), as(changelog.ScramSHA512, "hunter2"), "check kafka.sasl"},
		"an old token":                   {logins, ours.Client(), as(changelog.OAuthBearer, token("us", -time.Minute)), "check kafka.sasl"},
		"no login":                       {logins, ours.Client(), changelog.SASL{}, "SASL"},
		"no TLS":                         {logins, nil, as(changelog.Plain, "x"), "TLS"},
		"another authority":              {logins, others.Client(), as(changelog.Plain, "x"), "unknown authority"},
		"another name":                   {logins, another, as(changelog.Plain, "x"), "not kafka.test"},
		"no certificate":                 {shows, ours.Client(), changelog.SASL{}, "tls: "},
		"another's":                      {shows, ours.Client(others.Certify(dir, "other", time.Hour)), changelog.SASL{}, "tls: "},
		"a certificate that has expired": {shows, ours.Client(ours.Certify(dir, "old", -time.Hour)), changelog.SASL{}, "tls: "},
	} {
		err := connects(tc.addr, tc.tls, tc.sasl)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// token is a JSON web token that nobody has signed.
func token(subject string, lasts time.Duration) string {
	part := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	return part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, subject, now.Add(-time.Hour).Unix(), now.Add(lasts).Unix())) + "."
}
