package memcache

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

// piped is a dump whose far side is the test's.
func piped(silence time.Duration) (*dump, net.Conn) {
	near, far := net.Pipe()
	d := newDump(&metaLink{node: "n:1", conn: near, in: bufio.NewReader(near), timeout: time.Second}, new(stats))
	d.incoming.silence = silence
	return d, far
}

// What a dump waits for, and for how long.
func TestHowLongADumpWaits(t *testing.T) {
	const s = 700 * time.Millisecond // what the node may be silent for
	for name, tc := range map[string]struct {
		pauses [4]time.Duration // before the first line, before the second, before END, before the version
		blocks time.Duration    // whom the first key is told
		want   string
	}{
		"none":                    {},
		"as long as it may":       {pauses: [4]time.Duration{expansion + s - 1, s - 1, s - 1, expansion + s - 1}},
		"longer before the first": {pauses: [4]time.Duration{expansion + s + 1}, want: "nothing came for 30.7s"},
		"longer between":          {pauses: [4]time.Duration{0, s + 1}, want: "nothing came for 700ms"},
		"longer before END":       {pauses: [4]time.Duration{0, 0, s + 1}, want: "nothing came for 700ms"},
		"longer after it":         {pauses: [4]time.Duration{0, 0, 0, expansion + s + 1}, want: "whether END was the end: nothing came for 30.7s"},
		"whom it tells blocks":    {blocks: 3 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, far := piped(s)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer far.Close()
					in := bufio.NewReader(far)
					in.ReadString('\n')
					for i, text := range []string{aLine, aLine, "END\r\n"} {
						time.Sleep(tc.pauses[i])
						io.WriteString(far, text)
					}
					if line, err := in.ReadString('\n'); err == nil && line != "version\r\n" {
						t.Errorf("asked %q", line)
					}
					time.Sleep(tc.pauses[3])
					io.WriteString(far, "VERSION 1.6.18\r\n")
				}()
				lines := 0
				err := d.run(func(key []byte, cas uint64) {
					if lines++; lines == 1 {
						time.Sleep(tc.blocks)
					}
				})
				<-ended
				if (err == nil) != (tc.want == "") || !strings.Contains(errText(err), tc.want) {
					t.Errorf("after %d lines: %v, want %q", lines, err, tc.want)
				}
				var void *sink.VoidError
				if err != nil && !errors.As(err, &void) {
					t.Errorf("%T", err)
				}
			})
		})
	}
}

// longLine is that of the longest key.
var longLine = "key=" + strings.Repeat("%3A", sink.MaxKeyLen) + " exp=-1 la=1764500000 cas=17 fetch=no cls=1 size=63\n"

// writeDump is a server that has so many lines. It says when it has written them, or could not.
func writeDump(far net.Conn, lines int) (written chan error, ended chan struct{}) {
	written, ended = make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer far.Close()
		in := bufio.NewReader(far)
		in.ReadString('\n')
		_, err := io.WriteString(far, strings.Repeat(longLine, lines))
		written <- err
		io.WriteString(far, "END\r\n")
		in.ReadString('\n')
		io.WriteString(far, "VERSION 1.6.18\r\n")
	}()
	return written, ended
}

// Whoever is told the keys never holds a server back whose clients would wait: what it does not take is kept, up to a bound, and then the connection is
// closed.
func TestADumpIsReadWhoeverIsTold(t *testing.T) {
	most := maxChunks * readSize / len(longLine)
	for _, tc := range []struct {
		lines int
		want  string
	}{{most / 2, ""}, {2 * most, "does not keep up: 16 MiB wait"}} {
		d, far := piped(time.Hour)
		written, ended := writeDump(far, tc.lines)
		lines := 0
		err := d.run(func([]byte, uint64) {
			if lines++; lines == 1 {
				if err := <-written; (err == nil) != (tc.want == "") { // while the first key is being told
					t.Errorf("the server has written %d lines, and then: %v", tc.lines, err)
				}
			}
		})
		<-ended
		if (err == nil) != (tc.want == "") || !strings.Contains(errText(err), tc.want) || err == nil && lines != tc.lines {
			t.Errorf("%d of %d lines: %v", lines, tc.lines, err)
		}
	}
}

// One whose clients do not wait is held back by who goes on, and not for long by who does not.
func TestAServerThatMayBeHeldBack(t *testing.T) {
	all := 3 * maxChunks * readSize / len(longLine)
	for _, tc := range []struct {
		pause time.Duration // with each tenth of the lines
		want  string
	}{{patience - time.Millisecond, ""}, {patience + time.Millisecond, "does not keep up"}} {
		synctest.Test(t, func(t *testing.T) {
			d, far := piped(time.Hour)
			d.incoming.patient = true
			_, ended := writeDump(far, all)
			lines := 0
			err := d.run(func([]byte, uint64) {
				if lines++; lines%(all/10) == 1 {
					time.Sleep(tc.pause)
				}
			})
			<-ended
			if (err == nil) != (tc.want == "") || !strings.Contains(errText(err), tc.want) || err == nil && lines != all {
				t.Errorf("pausing for %s: %d of %d lines: %v", tc.pause, lines, all, err)
			}
		})
	}
}
