package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"invalidator/internal/config"
)

// tlsConfig reads the files that a tls section names; where names the section in errors. Nil gives nil: no TLS.
func tlsConfig(where string, t *config.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	out := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.ca: %w", where, err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca: %s holds no PEM certificate", where, t.CA)
		}
	}
	if t.Cert != "" || t.Key != "" {
		c, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: reading cert and key: %w", where, err)
		}
		out.Certificates = []tls.Certificate{c}
	}
	return out, nil
}
