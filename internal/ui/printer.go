package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Width is the most columns that a line should take.
const Width = 100

// Printer writes lines. It is for one goroutine.
type Printer struct {
	// Failed is told that a line could not be written: whoever read has gone. nil: nobody asks.
	Failed func(error)

	w      io.Writer
	colour bool
}

// New looks at w and at the environment for whether colours are wanted.
func New(w io.Writer) *Printer {
	return &Printer{w: w, colour: isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Line writes a line.
func (p *Printer) Line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil && p.Failed != nil {
		p.Failed(err)
	}
}

// Title writes a heading with an empty line before it.
func (p *Printer) Title(format string, args ...any) {
	p.Line("\n%s", p.paint("1", fmt.Sprintf(format, args...)))
}

// Bold makes a text bold.
func (p *Printer) Bold(s string) string { return p.paint("1", s) }

// Good makes a text green.
func (p *Printer) Good(s string) string { return p.paint("32", s) }

// Bad makes a text red.
func (p *Printer) Bad(s string) string { return p.paint("31;1", s) }

// Faint makes a text faint.
func (p *Printer) Faint(s string) string { return p.paint("2", s) }

func (p *Printer) paint(code, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Wrapped writes words after label, broken before Width; further lines are indented to where the first word stood.
func (p *Printer) Wrapped(label string, words []string) {
	indent := len(label)
	line, used := label, indent
	for i, w := range words {
		switch {
		case i == 0:
		case used+1+len(w) > Width:
			p.Line("%s", line)
			line, used = strings.Repeat(" ", indent), indent
		default:
			line += " "
			used++
		}
		line += w
		used += len(w)
	}
	p.Line("%s", line)
}
