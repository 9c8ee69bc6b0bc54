package mysql

import (
	"crypto/tls"
	"strings"
	"testing"
)

// Rows that go over a network are encrypted, or it is said.
func TestCheckOfTLS(t *testing.T) {
	for _, tc := range []struct {
		addr string
		tls  *tls.Config
		want string
	}{
		{"127.0.0.1:3306", nil, ""}, {"[::1]:3306", nil, ""}, {"localhost:3306", nil, ""},
		{"db.test:3306", nil, "not encrypted"}, {"10.0.0.5:3306", &tls.Config{InsecureSkipVerify: true}, "not verified"},
		{"10.0.0.5:3306", &tls.Config{}, ""},
	} {
		f := &Feeder{cfg: Config{Name: "shop", TLS: tc.tls}}
		found := f.checkTLS(tc.addr)
		if (len(found) == 1) != (tc.want != "") || len(found) == 1 && (!strings.Contains(found[0].What, tc.want) || found[0].Hint == "") {
			t.Errorf("%s: found %v, want %q", tc.addr, found, tc.want)
		}
	}
}
