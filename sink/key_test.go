package sink

import (
	"errors"
	"strings"
	"testing"
)

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
