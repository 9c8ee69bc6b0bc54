package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"invalidator/internal/app"
)

// bar shows how far a work is: on a terminal in one line that is written over and over, elsewhere in a line now and then.
type bar struct {
	w        io.Writer
	terminal bool
	width    int // columns; 0: not known
	last     string
	told     time.Time
	open     bool // a line of the terminal stands there without its end
}

const (
	barLine  = 80               // columns, where the terminal does not say
	barEvery = 10 * time.Second // between two lines elsewhere
)

func newBar(w io.Writer, terminal bool, width int) *bar {
	if width <= 0 {
		width = barLine
	}
	return &bar{w: w, terminal: terminal, width: width}
}

func (b *bar) show(w app.Work) {
	text := b.text(w)
	if b.terminal {
		b.say(text)
		return
	}
	// Who reads lines wants each state, and now and then how far it is.
	state := string(w.State) + w.Why
	if state != b.last || time.Since(b.told) >= barEvery {
		b.last, b.told = state, time.Now()
		fmt.Fprintln(b.w, text)
	}
}

// say replaces the line.
func (b *bar) say(text string) {
	if !b.terminal {
		fmt.Fprintln(b.w, text)
		return
	}
	fmt.Fprintf(b.w, "\r\x1b[K%s", cut(text, b.width-1))
	b.open = true
}

// end ends the line.
func (b *bar) end() {
	if b.open {
		fmt.Fprintln(b.w)
		b.open = false
	}
}

// text has what matters most first: a narrow terminal cuts the rest.
func (b *bar) text(w app.Work) string {
	var parts []string
	share, known := w.Share()
	switch {
	case w.State == app.WorkWaiting:
		return "waiting for a worker to begin it (does one run? invalidator status)"
	case w.State != app.WorkRunning:
		parts = append(parts, string(w.State))
	}
	if w.Left > 0 {
		parts = append(parts, "about "+span(time.Duration(w.Left)*time.Second)+" left")
	}
	if w.Why != "" {
		parts = append(parts, w.Why)
	}
	if w.All > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", short(w.Done), number(w.All, strings.TrimSuffix(w.Unit, "s"), w.Unit)))
	}
	parts = append(parts, fmt.Sprintf("%s keys", short(w.Keys)), fmt.Sprintf("%s copies", short(w.Copies)))
	if !known {
		share = 0
	}
	text := fmt.Sprintf("%3d%%", int(share*100))
	if b.terminal {
		text += " " + drawn(share, min(max(b.width/6, 10), 40))
	}
	return text + " " + strings.Join(parts, ", ")
}

// drawn is a bar of so many columns.
func drawn(share float64, width int) string {
	full := int(share * float64(width))
	head := ""
	if full < width {
		head = ">"
	}
	return "[" + strings.Repeat("=", full) + head + strings.Repeat(" ", max(width-full-1, 0)) + "]"
}

// short is a count in three digits or so: 950, 12.3k, 4.2M.
func short(n int64) string {
	switch x := float64(n); {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 100_000:
		return fmt.Sprintf("%.1fk", x/1e3)
	case n < 1_000_000:
		return fmt.Sprintf("%.0fk", x/1e3)
	case n < 100_000_000:
		return fmt.Sprintf("%.1fM", x/1e6)
	}
	return fmt.Sprintf("%.0fM", float64(n)/1e6)
}

// cut keeps a text within so many columns.
func cut(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}
