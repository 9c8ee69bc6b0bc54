package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells how far something long is: in one line that is written over and over on a terminal, elsewhere in a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	last     string    // what was told last
	told     time.Time // when
	moved    time.Time // when something was another than before
	open     bool      // a line of the terminal stands there without its end
}

const (
	// How often progress is told, on a terminal and elsewhere.
	progressTerminal = 100 * time.Millisecond
	progressElse     = 5 * time.Second
	// progressStuck is after how long without a step it is said that nothing moves.
	progressStuck = 10 * time.Second
)

func newProgress(w io.Writer, terminal bool) *progress {
	return &progress{w: w, terminal: terminal, told: time.Now(), moved: time.Now()}
}

func (p *progress) step(what string, n, of int64, unit string) {
	now, text := time.Now(), fmt.Sprintf("%d of %d %s %s", n, of, unit, what)
	if text != p.last {
		p.last, p.moved = text, now
	} else if now.Sub(p.moved) > progressStuck {
		text += fmt.Sprintf(", and nothing has moved for %s (does a worker run? invalidator status tells)", now.Sub(p.moved).Round(time.Second))
	}
	p.say(text, n == of)
}

// trouble tells of something that is tried again.
func (p *progress) trouble(what string) { p.say("trying again: "+what, false) }

func (p *progress) say(text string, last bool) {
	now := time.Now()
	every := progressElse
	if p.terminal {
		every = progressTerminal
	}
	if !last && now.Sub(p.told) < every || last && !p.open { // what ends before anything was told needs no word
		return
	}
	p.told = now
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.open = true
		return
	}
	fmt.Fprintln(p.w, text)
}

// end ends the line.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
}

// isTerminal reports whether f is one, or a device like it.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
