package ui

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestNoColourWithoutATerminal(t *testing.T) {
	var b bytes.Buffer
	p := New(&b)
	p.Title("A title of %d words", 5)
	p.Line("%s %s %s", p.Good("good"), p.Bad("bad"), p.Faint("faint"))
	if got, want := b.String(), "\nA title of 5 words\ngood bad faint\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestColours(t *testing.T) {
	var b bytes.Buffer
	p := &Printer{w: &b, colour: true}
	p.Line("%s", p.Bad("bad"))
	if got, want := b.String(), "\x1b[31;1mbad\x1b[0m\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWrapped(t *testing.T) {
	var b bytes.Buffer
	word := strings.Repeat("x", 45)
	New(&b).Wrapped("  keys ", []string{word, word, "end"})
	if got, want := b.String(), "  keys "+word+" "+word+"\n       end\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAReaderWhoHasGoneIsTold(t *testing.T) {
	p := New(closed{})
	p.Line("to nobody who asks")
	var told error
	p.Failed = func(err error) { told = err }
	p.Line("to nobody")
	if told == nil {
		t.Error("nobody was told")
	}
}
