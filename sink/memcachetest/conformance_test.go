package memcachetest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// conversation is one case of the suite: a name, and lines of "> sent", "< answered" and "wait 2s"; of dumps.txt also the arguments of its server, and
// "<~ answered, in any order".
type conversation struct {
	name  string
	args  []string
	lines []string
}

// conversations reads a file of testdata.
func conversations(t *testing.T, file string) (cases []conversation) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "== "):
			cases = append(cases, conversation{name: line[3:]})
		case strings.HasPrefix(line, "$ "):
			cases[len(cases)-1].args = strings.Fields(line[2:])
		case line != "" && !strings.HasPrefix(line, "#"):
			last := &cases[len(cases)-1]
			last.lines = append(last.lines, line)
		}
	}
	return cases
}

const (
	everything     = "conversations.txt"
	authentication = "authentication.txt"
	dumps          = "dumps.txt"
)

// conformance holds every conversation with the server that dial reaches.
func conformance(t *testing.T, cases []conversation, dial func(t *testing.T) net.Conn) {
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			newSpeaker(dial(t), fmt.Sprintf("case%d", i)).hold(t, c)
		})
	}
}

// hold follows a conversation. The MN in the end shows that nothing else was answered.
func (s *speaker) hold(t *testing.T, c conversation) {
	t.Helper()
	var anyOrder []string
	for _, line := range append(c.lines, "> mn", "< MN") {
		if want, ok := strings.CutPrefix(line, "<~ "); ok {
			anyOrder = append(anyOrder, want)
			continue
		}
		s.readAll(t, anyOrder)
		anyOrder = nil
		s.follow(t, line)
	}
}

// speaker follows a conversation. {name} in a line is a word that it knows; an unknown one in an answer is learnt there.
type speaker struct {
	conn  net.Conn
	in    *bufio.Reader
	words map[string]string
}

func newSpeaker(conn net.Conn, key string) *speaker {
	long := func(n int) string { return key + strings.Repeat("k", n-len(key)) }
	b64 := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }
	return &speaker{conn: conn, in: bufio.NewReader(conn), words: map[string]string{
		"key": key, "key250": long(250), "key251": long(251),
		"nul": "\x00", "tab": "\t", "del": "\x7f", "lf": "\n", "": "", // {} keeps an empty line
		"key64": b64(key), "spaced64": b64(key + " a"), "nul64": b64(key + "\x00b"), "crlf64": b64(key + "\r\nmd " + key), "del64": b64(key + "\x7f"),
		"high64": b64(key + "\xff\x00\xfe"), "key186b64": b64(long(185) + " "), "key187b64": b64(long(186) + " "),
	}}
}

const answerDeadline = 5 * time.Second

func (s *speaker) follow(t *testing.T, line string) {
	t.Helper()
	switch {
	case strings.HasPrefix(line, "wait "):
		d, err := time.ParseDuration(line[5:])
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(d)
	case strings.HasPrefix(line, "> "):
		if _, err := s.conn.Write([]byte(s.fill(line[2:]) + "\r\n")); err != nil {
			t.Fatal(err)
		}
	case strings.HasPrefix(line, "< "):
		if got := s.read(t, line[2:]); !s.learn(line[2:], got) {
			t.Fatalf("answer %q, want %q", got, s.fill(line[2:]))
		}
	default:
		t.Fatalf("not a line of a conversation: %q", line)
	}
}

// read returns the next line that is answered, without its end.
func (s *speaker) read(t *testing.T, want string) string {
	t.Helper()
	s.conn.SetReadDeadline(time.Now().Add(answerDeadline))
	got, err := s.in.ReadString('\n')
	if err != nil {
		t.Fatalf("no answer, want %q: %v", want, err)
	}
	return strings.TrimRight(got, "\r\n")
}

// readAll reads as many lines as are wanted, each of which is one of them.
func (s *speaker) readAll(t *testing.T, want []string) {
	t.Helper()
	for left := slices.Clone(want); len(left) > 0; {
		got := s.read(t, strings.Join(left, "\n"))
		at := slices.IndexFunc(left, func(w string) bool { return s.learn(w, got) })
		if at < 0 {
			t.Fatalf("answer %q, want one of\n%s", got, s.fill(strings.Join(left, "\n")))
		}
		left = slices.Delete(left, at, at+1)
	}
}

var word = regexp.MustCompile(`\{(\w*)\}`)

// fill puts the known words in.
func (s *speaker) fill(line string) string {
	return word.ReplaceAllStringFunc(line, func(w string) string {
		if v, known := s.words[w[1:len(w)-1]]; known {
			return v
		}
		return w
	})
}

// learn says whether got is what was wanted, and keeps the words that only got tells: numbers, that is CAS values.
func (s *speaker) learn(want, got string) bool {
	want = regexp.QuoteMeta(s.fill(want))
	names := []string{}
	want = regexp.MustCompile(`\\\{(\w+)\\\}`).ReplaceAllStringFunc(want, func(w string) string {
		names = append(names, w[2:len(w)-2])
		return `(\d+)`
	})
	found := regexp.MustCompile("^" + want + "$").FindStringSubmatch(got)
	for i, name := range names {
		if found != nil {
			s.words[name] = found[i+1]
		}
	}
	return found != nil
}

func TestConformance(t *testing.T) {
	s := Start(t)
	conformance(t, conversations(t, everything), func(t *testing.T) net.Conn { return dial(t, s.Addr()) })
}

func TestConformanceOfAuthentication(t *testing.T) {
	s := Start(t)
	s.RequireToken("invalidator", "secret")
	conformance(t, conversations(t, authentication), func(t *testing.T) net.Conn { return dial(t, s.Addr()) })
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
