package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"invalidator/internal/config"
)

// tlsConfig reads the files that a tls section names; where names the section in errors. Nil gives nil: no TLS.
func tlsConfig(where string, t *config.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	out := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	var err error
	if t.CA != "" {
		if out.RootCAs, err = authorities(where+".ca", t.CA); err != nil {
			return nil, err
		}
	}
	if t.Cert != "" || t.Key != "" {
		first, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: reading cert and key: %w", where, err)
		}
		// The files are read at each handshake: certificates that are renewed need no restart.
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if now, err := tls.LoadX509KeyPair(t.Cert, t.Key); err == nil {
				return &now, nil
			}
			return &first, nil
		}
	}
	return out, nil
}

func authorities(where, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %s holds no PEM certificate", where, file)
	}
	return pool, nil
}

// adminTLS reads the files of the admin listener, now, and at each handshake. While they cannot be read, what was read last serves.
func adminTLS(t *config.AdminTLS, log *slog.Logger) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	first, err := readAdminTLS(t)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	last, said := first, ""
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := readAdminTLS(t)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if said != err.Error() {
				said = err.Error()
				log.Warn("the admin listener keeps its certificate: the files cannot be read", "error", err)
			}
			return last, nil
		}
		last, said = now, ""
		return now, nil
	}}, nil
}

func readAdminTLS(t *config.AdminTLS) (*tls.Config, error) {
	c, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("admin.tls: reading cert and key: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c}, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
	if t.ClientCA != "" {
		if out.ClientCAs, err = authorities("admin.tls.client_ca", t.ClientCA); err != nil {
			return nil, err
		}
		out.ClientAuth = tls.VerifyClientCertIfGiven // who probes has none
	}
	return out, nil
}
