package memcache

import (
	"bufio"
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

// scriptedConn answers with what it holds, whatever is written.
type scriptedConn struct {
	net.Conn
	answers *strings.Reader
	written bytes.Buffer
}

func (c *scriptedConn) Read(p []byte) (int, error)  { return c.answers.Read(p) }
func (c *scriptedConn) Write(p []byte) (int, error) { return c.written.Write(p) }
func (c *scriptedConn) SetDeadline(time.Time) error { return nil }

func scriptedLink(answers string) (*metaLink, *scriptedConn) {
	conn := &scriptedConn{answers: strings.NewReader(answers)}
	return &metaLink{node: "n", conn: conn, in: bufio.NewReader(conn)}, conn
}

func TestExchange(t *testing.T) {
	for _, tc := range []struct {
		answers  string
		careful  bool
		answered int
		err      string // part of its text
	}{
		{"MN\r\n", false, 5, ""},
		{"NF\r\nNF\r\nMN\r\n", false, 5, ""},
		{"HD\r\nNF\r\nHD \r\nNF\r\nHD\r\nMN\r\n", true, 5, ""},
		{"NF\r\nSERVER_ERROR x\r\nMN\r\n", false, 0, "SERVER_ERROR x"},
		{"NF\r\nNF\r\nNF\r\nNF\r\nNF\r\nNF\r\nMN\r\n", false, 0, `"NF"`},
		{"HD\r\nSERVER_ERROR x\r\nHD\r\nMN\r\n", true, 1, "SERVER_ERROR x"},
		{"HD\r\nCLIENT_ERROR bad command line format\r\n", true, 1, "refuses key"},
		{"HD\r\nHD\r\nHD\r\nCLIENT_ERROR bad command line format\r\n", true, 3, "refuses key"},
		{"HD\r\nHD\r\nHD\r\nCLIENT_ERROR invalid or duplicate flag\r\n", true, 3, "refuses key"},
		{"HD\r\nHD\r\nHD\r\nCLIENT_ERROR invalid flag\r\n", true, 3, "refuses key"},
		{"HD\r\nHD\r\nHD\r\nCLIENT_ERROR unauthenticated\r\n", true, 3, "unexpected answer"},
		{"HD\r\nHD\r\nCLIENT_ERROR invalid flag\r\n", true, 2, "unexpected answer"},             // of a key that goes as it is
		{"HD\r\nHD\r\nHD\r\nHD\r\nCLIENT_ERROR invalid flag\r\n", true, 4, "unexpected answer"}, // it may be the mark
		{"CLIENT_ERROR invalid flag\r\nMN\r\n", false, 0, "unexpected answer"},
		{"HD\r\nMN\r\n", true, 1, `"MN"`},
		{"HD\r\nHD\r\nHD\r\nHD\r\nHD\r\nHD\r\nMN\r\n", true, 5, `"HD"`},
		{"HD\r\nH", true, 1, "closed"},
		{"NF\r\nMN", false, 0, "closed"},
		{"", false, 0, "closed"},
	} {
		l, conn := scriptedLink(tc.answers)
		answered, err := l.exchange([]entry{{key: "a"}, {key: "b", stale: 30}, {key: "c"}, {key: "d d", base64: true},
			{key: "e\x00\xff", base64: true, stale: 5}}, tc.careful)
		if text := errText(err); answered != tc.answered || (err == nil) != (tc.err == "") || !strings.Contains(text, tc.err) {
			t.Errorf("%q, careful %v: answered %d, %s; want %d, %s", tc.answers, tc.careful, answered, text, tc.answered, tc.err)
		}
		want := "md a q\r\nmd b q I T30\r\nmd c q\r\nmd ZCBk b q\r\nmd ZQD/ b q I T5\r\nmn\r\n"
		if tc.careful {
			want = strings.ReplaceAll(want, " q", "")
		}
		if got := conn.written.String(); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzExchange reads any answers: nothing counts as answered without the lines that say so.
func FuzzExchange(f *testing.F) {
	for _, seed := range []string{"MN\r\n", "NF\r\nMN\r\n", "HD\r\nNF\r\nHD\r\nMN\r\n", "HD \n\nMN", "SERVER_ERROR x\r\n", "CLIENT_ERROR bad command line format\r\n"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, answers string, careful bool) {
		l, _ := scriptedLink(answers)
		answered, err := l.exchange([]entry{{key: "a"}, {key: "b"}, {key: "c"}}, careful)
		if err == nil && (answered != 3 || !strings.Contains(answers, "MN")) {
			t.Fatalf("%q: answered %d without an error", answers, answered)
		}
		if lines := strings.Count(answers, "HD") + strings.Count(answers, "NF"); careful && answered > lines {
			t.Errorf("%q: answered %d, there are %d such lines", answers, answered, lines)
		}
		if !careful && err != nil && answered != 0 {
			t.Errorf("%q: a quiet batch that failed counts %d as answered", answers, answered)
		}
	})
}
