//go:build integration

package postgres

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
	"invalidator/test/certs"
)

// Over TLS, with a certificate of the right authority, a feeder reads; without TLS, with another authority, another name, or no certificate
// it is told why not, and its password is not.
func TestTLS(t *testing.T) {
	ours, others := certs.New(t), certs.New(t)
	s := newServer(t, 17)
	pair := ours.Certify(s.dir, "server", time.Hour)
	s.set("ssl = on", "ssl_cert_file = '"+pair.Cert+"'", "ssl_key_file = '"+pair.Key+"'", "ssl_ca_file = '"+ours.File+"'", "password_encryption = 'scram-sha-256'")
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE ROLE feeds SUPERUSER REPLICATION LOGIN PASSWORD 'right'")
	rules := "host all postgres 127.0.0.1/32 trust\nhostssl all feeds 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\nhostssl replication feeds 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"
	if err := os.WriteFile(filepath.Join(s.dir, "pg_hba.conf"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.start()
	d = s.db("postgres")
	right := ours.Client(ours.Certify(t.TempDir(), "feeds", time.Hour))
	config := func(c *tls.Config, password string) Config {
		cfg := d.config("public.*")
		cfg.User, cfg.Password, cfg.TLS = "feeds", saying(password), c
		return cfg
	}
	another := right.Clone()
	another.ServerName = "db.test"
	for name, tc := range map[string]struct {
		tls      *tls.Config
		password string
		want     string
	}{
		"no TLS":             {nil, "right", "no pg_hba.conf entry"},
		"another authority":  {others.Client(), "right", "unknown authority"},
		"another name":       {another, "right", "not db.test"},
		"no certificate":     {ours.Client(), "right", "client certificate"},
		"another's":          {ours.Client(others.Certify(t.TempDir(), "feeds", time.Hour)), "right", "unknown certificate authority"},
		"an expired one":     {ours.Client(ours.Certify(t.TempDir(), "feeds", -time.Hour)), "right", "expired"},
		"the wrong password": {right, "hunter2", "password authentication failed"},
	} {
		err := newFeeder(t, config(tc.tls, tc.password)).Run(t.Context(), cdc.Position{}, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), tc.password) && tc.password != "right" {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	r := d.start(newFeeder(t, config(right, "right")), cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	if n := d.text("SELECT count(*)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'feeds' AND NOT ssl"); n != "0" {
		t.Errorf("%s of its connections are in the clear", n)
	}
}
