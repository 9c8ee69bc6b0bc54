package memcachetest

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
	"time"
)

// Certificate is one of a node on the loopback address, by 127.0.0.1, ::1 and localhost, that is its own authority.
type Certificate struct {
	CertFile, KeyFile string // PEM, readable by the user that memcached runs as
	pair              tls.Certificate
	pool              *x509.CertPool
}

// NewCertificate makes one that stands for the test.
func NewCertificate(tb TB) *Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("making a key: %v", err)
	}
	now := time.Now()
	shape := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "memcached"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, shape, shape, &key.PublicKey, key)
	if err != nil {
		tb.Fatalf("making a certificate: %v", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatalf("writing a key: %v", err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	c := &Certificate{CertFile: openFile(tb, "cert.pem", certPEM), KeyFile: openFile(tb, "key.pem", keyPEM), pool: x509.NewCertPool()}
	if c.pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		tb.Fatalf("reading a certificate back: %v", err)
	}
	c.pool.AppendCertsFromPEM(certPEM)
	return c
}

// Args are those of a memcached that serves it.
func (c *Certificate) Args() []string {
	return []string{"-Z", "-o", "ssl_chain_cert=" + c.CertFile + ",ssl_key=" + c.KeyFile}
}

// Serve is for a listener that serves it.
func (c *Certificate) Serve() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.pair}}
}

// Trust is for a client that believes it and no other.
func (c *Certificate) Trust() *tls.Config { return &tls.Config{RootCAs: c.pool} }

// TokenFile writes the file that -Y wants.
func TokenFile(tb TB, user, password string) string {
	tb.Helper()
	return openFile(tb, "tokens", []byte(user+":"+password+"\n"))
}

// openFile writes a file that the user nobody can read: a memcached that is started as root runs as that one.
func openFile(tb TB, name string, content []byte) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "memcached")
	if err != nil {
		tb.Fatalf("making a folder: %v", err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatalf("opening a folder: %v", err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		tb.Fatalf("writing %s: %v", name, err)
	}
	return path
}
