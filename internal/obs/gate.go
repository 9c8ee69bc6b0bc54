package obs

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"
)

const (
	maxHeader   = 16 << 10         // bytes of a request's head
	maxBody     = 1 << 20          // bytes of its body
	bodyTimeout = 15 * time.Second // to send it
	maxConns    = 512              // at once; more wait
	idleTimeout = 2 * time.Minute
)

// Gate says who may use the listener. /-/healthy and /-/ready are everybody's: who probes has no secrets.
type Gate struct {
	Certificate bool            // a client certificate, which TLS has verified, is wanted
	Tokens      func() []string // one of them is wanted, if the first is not empty; nil: none is
}

// handler lets pass who may: with Authorization: Bearer, or as a browser asks for it, with any user and the token as password. What changes
// something has to ask for more by itself, since a browser sends passwords along with what another site has it ask.
func (g Gate) handler(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == healthy || r.URL.Path == ready:
		case g.Certificate && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0):
			http.Error(w, "a client certificate is wanted here (admin.tls.client_ca)", http.StatusForbidden)
			return
		case !g.knows(r):
			w.Header().Set("WWW-Authenticate", `Basic realm="invalidator", charset="UTF-8"`)
			http.Error(w, "a token is wanted here (admin.read_token): as Authorization: Bearer TOKEN, or as the password of any user", http.StatusUnauthorized)
			return
		}
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // HTTP/2 can, and so can the rest
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		next.ServeHTTP(w, r)
	})
}

// knows compares with each token, so that the time taken tells nothing.
func (g Gate) knows(r *http.Request) bool {
	if g.Tokens == nil {
		return true
	}
	tokens := g.Tokens()
	if len(tokens) == 0 || tokens[0] == "" {
		return true
	}
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		_, given, _ = r.BasicAuth()
	}
	known := false
	for _, t := range tokens {
		known = Same(t, given) || known
	}
	return known
}

// Same compares a secret with what somebody gave. No secret is the same as nothing. The time that it takes tells nothing of either.
func Same(secret, given string) bool {
	want, got := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && secret != ""
}
