package mysql

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"invalidator/cdc"
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

// A server whose rows are logged in part is warned of by Check and when Run starts; a session that has an image of its own is met
// row by row (TestC2MinimalImages). The variables are a fixture: a server shared by tests cannot be told to log less.
func TestC2StartWarnsOfTheRowImage(t *testing.T) {
	vars := func(image string) map[string]string {
		return map[string]string{"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": image, "binlog_row_metadata": "FULL"}
	}
	for _, tt := range []struct {
		image string
		warns bool
	}{{"FULL", false}, {"MINIMAL", true}, {"NOBLOB", true}, {"", true}} {
		t.Run("image "+tt.image, func(t *testing.T) {
			var log bytes.Buffer
			f, err := New(Config{Name: "shop", Hosts: []string{"127.0.0.1:3306"}, User: "cdc"}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			s := &server{vars: vars(tt.image), gtid: true}
			if err := f.refuse(s); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "source=shop") &&
				strings.Contains(log.String(), "SET GLOBAL binlog_row_image = FULL"); got != tt.warns {
				t.Errorf("the log says %q", log.String())
			}
			if found := f.checkLog(s); (len(found) == 1) != tt.warns || tt.warns && found[0].Severity != cdc.SeverityWarning {
				t.Errorf("found %q", found)
			}
		})
	}
}
