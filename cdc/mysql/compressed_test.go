package mysql

import "testing"

func TestUncompressed(t *testing.T) {
	for s, want := range map[string]string{"": "", "\x00abc": "abc", "\x00": "",
		"\x89\x03\x4b\x4c\x4a\x06\x00": "abc", "\x81\x03\x78\x9c\x4b\x4c\x4a\x06\x00\x02\x4d\x01\x27": "abc"} {
		if got, err := uncompressed(s); got != want || err != nil {
			t.Errorf("%x: %q, %v; want %q", s, got, err, want)
		}
	}
	for _, s := range []string{"\x91\x03abc", "\x89", "\x89\x04\x4b\x4c\x4a\x06\x00", "\x89\x02\x4b\x4c\x4a\x06\x00", "\x81\x03\x78\x9d", "\x10abc"} {
		if got, err := uncompressed(s); err == nil {
			t.Errorf("%x is read as %q", s, got)
		}
	}
}

func FuzzUncompressed(f *testing.F) {
	f.Add("\x89\x03\x4b\x4c\x4a\x06\x00")
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := uncompressed(s); err != nil && got != "" {
			t.Errorf("%q with %v", got, err)
		}
	})
}
