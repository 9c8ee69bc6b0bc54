// Package certs makes certificate authorities and certificates, for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	File string // PEM of its own

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority that stands for the test.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t), File: filepath.Join(t.TempDir(), "ca.pem")}
	shape := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = a.sign(shape, shape, &a.key.PublicKey)
	a.write(a.File, block("CERTIFICATE", a.cert.Raw))
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(shape, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, shape, parent, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *Authority) write(file string, text []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// Pair is a certificate with its key.
type Pair struct {
	Cert, Key string // PEM files: <name>.pem and <name>.key
	Both      string // the key and then the certificate, as Kafka wants them: <name>.both.pem
}

// Certify writes a certificate into a folder, in place of what is there. It is good for servers and clients on 127.0.0.1, and by the name
// localhost, from two hours ago on for so long from now.
func (a *Authority) Certify(dir, name string, lasts time.Duration) Pair {
	a.t.Helper()
	key := newKey(a.t)
	c := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(lasts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, &key.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certText, keyText := block("CERTIFICATE", c.Raw), block("PRIVATE KEY", der)
	at := filepath.Join(dir, name)
	p := Pair{at + ".pem", at + ".key", at + ".both.pem"}
	a.write(p.Cert, certText)
	a.write(p.Key, keyText)
	a.write(p.Both, append(keyText, certText...))
	return p
}

// Client trusts this authority, and shows the pair where there is one.
func (a *Authority) Client(p ...Pair) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	for _, p := range p {
		pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = append(c.Certificates, pair)
	}
	return c
}
