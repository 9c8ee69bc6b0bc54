package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Elsewhere than on a terminal, progress is a line now and then; what is quick is told nothing of, and what stands still is called so.
func TestProgressInLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, false)
		p.step("written", 5, 10, "keys")
		time.Sleep(time.Second)
		p.step("written", 10, 10, "keys")
		p.end()
		if out.Len() > 0 {
			t.Fatalf("told %q", out.String())
		}
		for range 30 {
			time.Sleep(time.Second)
			p.step("passed by the workers", 2, 7, "records")
		}
		p.trouble("the broker is away")
		time.Sleep(progressElse)
		p.trouble("the broker is away")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 7 || lines[0] != "2 of 7 records passed by the workers" || lines[6] != "trying again: the broker is away" ||
			!strings.HasSuffix(lines[4], "and nothing has moved for 23s (does a worker run? invalidator status tells)") {
			t.Errorf("told %q", lines)
		}
	})
}

// On a terminal it is one line, which ends where something else follows.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, true)
		for n := range int64(4) {
			p.step("written", n, 3, "keys")
			time.Sleep(progressTerminal)
		}
		p.end()
		if want := "\r\x1b[K1 of 3 keys written\r\x1b[K2 of 3 keys written\r\x1b[K3 of 3 keys written\n"; out.String() != want {
			t.Errorf("told %q, want %q", out.String(), want)
		}
	})
}
