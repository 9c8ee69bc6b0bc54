package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/ui"
)

// watchEvery is how often --watch looks.
const watchEvery = 2 * time.Second

// Words of a terminal: another screen without a cursor and back, and from the first column of the first line on.
const (
	screenOther = "\x1b[?1049h\x1b[?25l"
	screenBack  = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineRest    = "\x1b[K\r\n"
	screenRest  = "\x1b[J"
)

// watchFleet shows the fleet again and again until an interrupt, on a terminal in place, elsewhere one look below the other. It returns what it saw last.
func watchFleet(e *env, r *app.FleetReader, fleet app.Fleet) app.Fleet {
	terminal := isTerminal(e.stdout)
	if terminal {
		io.WriteString(e.stdout, screenOther)
		defer func() {
			io.WriteString(e.stdout, screenBack)
			if err := fleetForPeople(e.stdout, fleet, time.Now()); err != nil {
				e.log.Debug("showing the fleet", "error", err)
			}
		}()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	trouble := ""
	for {
		now := time.Now()
		columns, lines := terminalSize(e.stdout)
		s := screen{paint: ui.New(e.stdout), width: columns}
		text := s.frame(fleet, trouble, now)
		if terminal {
			text = inPlace(text, columns, lines)
		} else {
			text += "\n"
		}
		if _, err := io.WriteString(e.stdout, text); err != nil {
			return fleet // whoever read has gone
		}
		select {
		case <-e.ctx.Done():
			return fleet
		case <-tick.C:
		}
		switch next, err := r.Read(e.ctx); {
		case e.ctx.Err() != nil:
			return fleet
		case err != nil:
			trouble = err.Error()
		default:
			fleet, trouble = next, ""
		}
	}
}

// frame is a look, with what needs a person first: the rest may not have room.
func (s screen) frame(fleet app.Fleet, trouble string, now time.Time) string {
	head := s.paint.Faint(now.Format(time.DateTime)+"  fleet "+fleet.Group+"  ") + s.verdict(fleet)
	if trouble != "" {
		head += s.paint.Bad("what is shown is old") + ": " + trouble + "\n"
	}
	blocks := append([]string{head, s.findings(fleet)}, s.tables(fleet, now)...)
	return strings.Join(slices.DeleteFunc(blocks, func(b string) bool { return b == "" }), "\n")
}

// inPlace has a terminal show a text over what it showed before, without a line more than it has.
func inPlace(text string, columns, lines int) string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines > 1 && len(all) > lines-1 {
		all = append(all[:lines-2], fmt.Sprintf("%d lines more (a larger window shows them)", len(all)-lines+2))
	}
	for i, line := range all {
		all[i] = cutPainted(line, columns)
	}
	return screenHome + strings.Join(all, lineRest) + lineRest + screenRest
}

// cutPainted is cut for a line that may have colours, which take no columns.
func cutPainted(line string, width int) string {
	if width <= 0 {
		return line
	}
	var b strings.Builder
	n, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
		if n > width {
			return b.String() + "\x1b[0m"
		}
		b.WriteRune(r)
	}
	return b.String()
}
