//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"invalidator/internal/app"
	"invalidator/replay"
)

// terminal is a terminal of its own: what is written to tty is shown.
type terminal struct {
	t       *testing.T
	tty     *os.File
	outer   *os.File
	changed chan struct{} // something was shown
	seen    int           // up to where await has looked

	mu    sync.Mutex
	shown bytes.Buffer
}

func newTerminal(t *testing.T, columns, lines uint16) *terminal {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := func(f *os.File, request uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var locked, number int32
	control(outer, syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	control(outer, syscall.TIOCGPTN, unsafe.Pointer(&number))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	control(tty, syscall.TIOCSWINSZ, unsafe.Pointer(&struct{ rows, columns, x, y uint16 }{lines, columns, 0, 0}))
	x := &terminal{t: t, tty: tty, outer: outer, changed: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := outer.Read(b)
			x.mu.Lock()
			x.shown.Write(b[:n])
			x.mu.Unlock()
			select {
			case x.changed <- struct{}{}:
			default:
			}
			if err != nil { // nobody has the terminal open any more
				return
			}
		}
	}()
	t.Cleanup(func() { tty.Close(); <-done; outer.Close() })
	return x
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.String()
}

// await waits until the terminal shows a text, behind what it waited for before.
func (x *terminal) await(text string) {
	x.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if at := strings.Index(x.text()[x.seen:], text); at >= 0 {
			x.seen += at + len(text)
			return
		}
		select {
		case <-x.changed:
		case <-deadline:
			x.t.Fatalf("%q was not shown:\n%q", text, x.text())
		}
	}
}

func (x *terminal) typed(text string) {
	x.t.Helper()
	if _, err := x.outer.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// On a terminal it asks, and shows a bar.
func TestOnATerminal(t *testing.T) {
	b := newAskBench(t)
	x := newTerminal(t, 80, 24)
	do := func(args ...string) (code int) {
		return run(t.Context(), append(args, "--config", b.config), x.tty, x.tty, x.tty)
	}
	ended := make(chan int)
	go func() { ended <- do("flush", "pool", "feed", "--id", "f0") }()
	x.await("Delete all keys of pool feed? Each is read from the database again. [y/N] ")
	x.typed("\n")
	x.await("nothing was asked for")
	if code := <-ended; code != exitFailed || len(b.controls()) != 0 {
		t.Errorf("exit %d, written: %v\n%s", code, b.controls(), x.text())
	}

	go func() { ended <- do("flush", "pool", "feed", "--id", "f1", "--wait") }()
	x.await("[y/N] ")
	x.typed("y\n")
	x.await("waiting for a worker to begin it")
	b.tell(b.names.Control, replay.Job{ID: "f1", At: time.Now(), Scope: replay.Target{Pool: "feed"}, Answers: []string{"f1"}, Epoch: 7, Limit: 1000, Parts: 4})
	b.tell(b.names.Status, replay.Progress{ID: "f1", At: time.Now(), Worker: "w", Part: &replay.Part{N: 0, Of: 4}, Node: "a:1", Round: 1, Keys: 12345, Copies: 12345, Done: true})
	x.await("\r\x1b[K 25% [===>         ] 1 of 4 parts, 12.3k keys, 12.3k copies")
	b.tell(b.names.Status, replay.Result{ID: "f1", At: time.Now(), Clean: true, Keys: 20000, Copies: 20000})
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d\n%s", code, x.text())
	}
	x.await("f1 is done; 20,000 keys, 20,000 copies deleted")
}

// Status keeps to the columns of the terminal, and --watch to its lines.
func TestStatusOnATerminal(t *testing.T) {
	config, speak := fleetTopic(t)
	now := time.Now().UTC().Truncate(time.Second).Add(time.Minute)
	for i := range 30 {
		speak(fmt.Sprintf("a-worker-with-quite-a-long-name-%02d-AAAAAAAA", i), lastWord(now, "worker", "9f2c4e1b00aa1122", 12*time.Minute, `,"ring":{"epoch":7,"hot_revision":51}`))
	}
	x := newTerminal(t, 80, 12)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"status", "--watch", "-c", config}, strings.NewReader(""), x.tty, x.tty)
	}()
	x.await(screenOther + screenHome)
	x.await("lines more (a larger window shows them)")
	x.await(screenHome) // it looks again
	interrupt()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d\n%s", code, x.text())
	}
	x.await(screenBack)
	x.await("all is well\x1b[0m\r\n")
	frame, last, _ := strings.Cut(x.text(), screenBack)
	for _, line := range strings.Split(frame+last, "\r\n") {
		if n := len([]rune(unpainted(strings.TrimSuffix(line, "\r")))); n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	frames := strings.Split(frame, screenHome)
	for _, f := range frames[1:] {
		if n := strings.Count(f, "\r\n"); n > 11 {
			t.Errorf("a look of %d lines: %q", n, f)
		}
	}
	if !strings.Contains(last, "a-worker-wit…e-00-AAAAAAAA  worker") || !strings.Contains(last, "and 10 more (--json has all)") {
		t.Errorf("at the end: %s", last)
	}
}

// unpainted is a line without what a terminal does not show.
func unpainted(line string) string {
	var b strings.Builder
	for escape := false; line != ""; line = line[1:] {
		switch c := line[0]; {
		case c == '\x1b':
			escape = true
		case !escape:
			b.WriteByte(c)
		case c >= '@' && c != '[':
			escape = false
		}
	}
	return b.String()
}

// A bar has room in the columns of its terminal, whatever it has to say.
func TestBar(t *testing.T) {
	w := app.Work{ID: "r1", Kind: app.KindReplay, State: app.WorkRunning, Unit: app.UnitRecords, Done: 270_000, All: 600_000, Keys: 9312, Copies: 18624, Left: 4}
	for width, want := range map[int]string{
		80:  " 45% [=====>       ] about 4s left, 270k of 600,000 records, 9.3k keys, 18.6k …",
		200: " 45% [==============>                  ] about 4s left, 270k of 600,000 records, 9.3k keys, 18.6k copies",
		0:   " 45% [=====>       ] about 4s left, 270k of 600,000 records, 9.3k keys, 18.6k …",
	} {
		var out bytes.Buffer
		b := newBar(&out, true, width)
		b.show(w)
		b.end()
		if got := out.String(); got != "\r\x1b[K"+want+"\n" {
			t.Errorf("%d columns: %q", width, got)
		}
	}
	var out bytes.Buffer
	b := newBar(&out, false, 0)
	b.show(w)
	b.show(w)
	w.Why = "the load is above its limit"
	b.show(w)
	w.State, w.Why, w.Done, w.Left = app.WorkDone, "", 600_000, 0
	b.show(w)
	b.end()
	want := " 45% about 4s left, 270k of 600,000 records, 9.3k keys, 18.6k copies\n" +
		" 45% about 4s left, the load is above its limit, 270k of 600,000 records, 9.3k keys, 18.6k copies\n" +
		"100% done, 600k of 600,000 records, 9.3k keys, 18.6k copies\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
