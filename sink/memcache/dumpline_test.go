package memcache

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestParseDumpLine(t *testing.T) {
	for line, want := range map[string]string{ // key and CAS; empty: it is none
		"key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63":                       "user:42 17",
		"key=a exp=1764500060 la=1764500000 cas=18446744073709551615 fetch=yes cls=39 size=1000": "a 18446744073709551615",
		"key=a exp=-1 la=0 cas=0 fetch=no cls=1 size=63\r":                                       "a 0",
		"key=-._~%00%0D%0A%20%25%ff%C3%A9 exp=-1 la=1 cas=2 fetch=no cls=1 size=63":              "-._~\x00\r\n %\xff\xc3\xa9 2",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 flags=0 ext_page=1 ext_offset=16":        "a 2",
		"key=" + strings.Repeat("%3A", 250) + " exp=-1 la=1 cas=2 fetch=no cls=1 size=63":        strings.Repeat(":", 250) + " 2",
		"key=" + strings.Repeat("a", 251) + " exp=-1 la=1 cas=2 fetch=no cls=1 size=63":          "",
		"":      "",
		"END":   "",
		"BUSY":  "",
		"key=":  "",
		"key=a": "",
		"key= exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                      "",
		"key=a: exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                    "",
		"key=a%4 exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                   "",
		"key=a% exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                    "",
		"key=a%4g exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                  "",
		"key=a%- exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                   "",
		"key=é exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                     "",
		" key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                    "",
		"key=a  exp=-1 la=1 cas=2 fetch=no cls=1 size=63":                    "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 ":                    "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=":                       "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1":                             "",
		"key=a exp=- la=1 cas=2 fetch=no cls=1 size=63":                      "",
		"key=a exp=x la=1 cas=2 fetch=no cls=1 size=63":                      "",
		"key=a exp=-1 la=-1 cas=2 fetch=no cls=1 size=63":                    "",
		"key=a exp=-1 la=1 cas= fetch=no cls=1 size=63":                      "",
		"key=a exp=-1 la=1 cas=18446744073709551616 fetch=no cls=1 size=63":  "",
		"key=a exp=-1 la=1 cas=99999999999999999999 fetch=no cls=1 size=63":  "",
		"key=a exp=-1 la=1 cas=111111111111111111111 fetch=no cls=1 size=63": "",
		"key=a exp=-1 la=1 cas=2 fetch=ye cls=1 size=63":                     "",
		"key=a exp=-1 la=1 fetch=no cas=2 cls=1 size=63":                     "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 flags":               "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 flags=":              "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 =1":                  "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 key=1":               "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 flags=0key=a":        "",
		"key=a exp=-1 la=1 cas=2 fetch=no cls=1 size=63 flags=0 x flags=0":   "",
	} {
		key, cas, ok := parseDumpLine([]byte(line))
		got := ""
		if ok {
			got = fmt.Sprintf("%s %d", key, cas)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// A server that writes a part of its buffer twice leaves a line that breaks off, and another that begins in it: wherever that is, it shows.
func TestALineThatAnotherBeginsInIsNone(t *testing.T) {
	const line = "key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63 flags=0"
	for cut := 1; cut < len(line); cut++ {
		for _, next := range []string{line, "END"} {
			if key, cas, ok := parseDumpLine([]byte(line[:cut] + next)); ok {
				t.Errorf("%q and %q were taken for %q, %d", line[:cut], next, key, cas)
			}
		}
	}
}

func FuzzParseDumpLine(f *testing.F) {
	f.Add("key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63")
	f.Add("key=a exp=1764500060 la=1764500000 cas=18446744073709551615 fetch=yes cls=39 size=1000 flags=0\r")
	f.Add("END")
	f.Add("key=%")
	f.Fuzz(func(t *testing.T, line string) {
		key, cas, ok := parseDumpLine([]byte(line))
		if !ok {
			return
		}
		text, rest, _ := strings.Cut(strings.TrimPrefix(line, "key="), " ")
		want, err := url.PathUnescape(text)
		if err != nil || string(key) != want || len(key) == 0 || len(key) > 250 {
			t.Errorf("%q: the key %q, want %q, %v", line, key, want, err)
		}
		if !strings.Contains(rest, fmt.Sprintf(" cas=%d ", cas)) && !strings.Contains(rest, " cas=0") {
			t.Errorf("%q: the CAS value %d", line, cas)
		}
	})
}

func TestParsingALineAllocatesNothing(t *testing.T) {
	line, buf := []byte("key=user%3A42 exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63"), make([]byte, 100)
	if n := testing.AllocsPerRun(100, func() {
		if _, _, ok := parseDumpLine(buf[:copy(buf, line)]); !ok {
			t.Fatal("it is none")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
