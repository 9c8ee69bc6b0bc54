package sink

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestCheckMetaKey(t *testing.T) {
	for _, c := range []struct {
		name, key string
		inBase64  bool
		problem   string
	}{
		{"plain", "user:1", false, ""},
		{"250 plain bytes", strings.Repeat("k", 250), false, ""},
		{"251 plain bytes", strings.Repeat("k", 251), false, "it is 251 bytes long, the limit is 250"},
		{"no UTF-8", "u:\x80\xff", false, ""},
		{"empty", "", false, "it is empty"},
		{"space", "user: 1", true, ""},
		{"NUL", "\x00", true, ""},
		{"DEL", "k\x7f", true, ""},
		{"a command", "k\r\nflush_all", true, ""},
		{"186 bytes with a space", strings.Repeat("k", 185) + " ", true, ""},
		{"187 bytes with a space", strings.Repeat("k", 186) + " ", true, "it is 187 bytes long, the limit is 186 for one that has to be sent in base64"},
		{"251 bytes with a space", strings.Repeat("k", 250) + " ", true, "it is 251 bytes long, the limit is 186 for one that has to be sent in base64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBase64, err := CheckMetaKey(c.key)
			if bad := (*KeyError)(nil); inBase64 != c.inBase64 || (err != nil) != (c.problem != "") || errors.As(err, &bad) && bad.Problem != c.problem {
				t.Errorf("in base64 %v, %v; want %v, %q", inBase64, err, c.inBase64, c.problem)
			}
			if sent := base64.StdEncoding.EncodedLen(len(c.key)); inBase64 && (err == nil) != (sent <= MaxKeyLen) {
				t.Errorf("%d bytes would be sent, and the error is %v", sent, err)
			}
		})
	}
}

func TestShowAndBase64(t *testing.T) {
	for _, c := range []struct{ key, shown, base64 string }{
		{"user:1", "user:1", ""},
		{"u:Zoë", "u:Zoë", ""},
		{`u:"\`, `u:"\`, ""},
		{"u:a b", `"u:a b"`, "dTphIGI="},
		{"u:\x00\xff\x7f", `"u:\x00\xff\x7f"`, "dToA/38="},
		{"u:\xff", `"u:\xff"`, "dTr/"},
	} {
		if shown, b := Show(c.key), Base64(c.key); shown != c.shown || b != c.base64 {
			t.Errorf("%q: %s and %q, want %s and %q", c.key, shown, b, c.shown, c.base64)
		}
	}
}

func TestCheckKey(t *testing.T) {
	for _, c := range []struct{ name, key, problem string }{
		{"plain", "user:1", ""},
		{"250 bytes", strings.Repeat("k", 250), ""},
		{"251 bytes", strings.Repeat("k", 251), "it is 251 bytes long, the limit is 250"},
		{"245 bytes and a copy's suffix", strings.Repeat("k", 245) + "#8", ""},
		{"any byte above the space", "u:Zoë\x80\xff", ""},
		{"83 characters of four bytes", strings.Repeat("😀", 83), "it is 332 bytes long, the limit is 250"},
		{"empty", "", "it is empty"},
		{"space", "user: 1", "byte 6 is 0x20, a space or a control byte"},
		{"a command", "k\r\nflush_all", "byte 2 is 0x0d, a space or a control byte"},
		{"NUL", "\x00", "byte 1 is 0x00, a space or a control byte"},
		{"DEL", "k\x7f", "byte 2 is 0x7f, a space or a control byte"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckKey(c.key)
			var bad *KeyError
			switch {
			case c.problem == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case c.problem != "" && (!errors.As(err, &bad) || bad.Problem != c.problem):
				t.Errorf("got %v, want %q", err, c.problem)
			}
		})
	}
}
