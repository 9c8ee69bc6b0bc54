package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"invalidator/internal/ui"
	"invalidator/sink"
)

// told is how many keys of a scene are told by name.
const told = 4

// tell says what a scene on one database came to.
func (d *demo) tell(sc *scene, filled map[sink.Copy]string, deleted []sink.Copy, v verdict, took time.Duration, missing int) {
	for i, w := range sc.writes {
		label := ""
		if i == 0 {
			label = sc.db.name()
		}
		d.out.Line("   %-9s %s", d.out.Bold(fmt.Sprintf("%-9s", label)), cut(w.sql(), ui.Width-13))
	}
	keys := sc.keys
	more := len(keys) - told
	if more > 0 {
		keys = append(slices.Clone(keys[:told]), fmt.Sprintf("and %d more", more))
	}
	d.out.Wrapped(strings.Repeat(" ", 13)+"keys    ", keys)
	there := fmt.Sprintf("%d there", len(filled)-missing)
	if missing > 0 {
		there += d.out.Bad(fmt.Sprintf(", %d MISSING", missing))
	}
	d.detail("copies  %s; deleted %s", there, d.byNode(filled, deleted))
	d.detail("after   %s %d gone, %d filled anew by a reader, %s", d.out.Bold(ms(took)+":"), v.absent, v.equal, d.staleCount(v))
}

func (d *demo) staleCount(v verdict) string {
	if len(v.stale) == 0 {
		return d.out.Good("0 stale")
	}
	return d.out.Bad(fmt.Sprintf("%d STALE", len(v.stale)))
}

// detail writes a line under a database's name.
func (d *demo) detail(format string, args ...any) {
	d.out.Line("%13s%s", "", fmt.Sprintf(format, args...))
}

// byNode counts the acknowledged deletes of copies that were there, by node.
func (d *demo) byNode(filled map[sink.Copy]string, deleted []sink.Copy) string {
	count := map[string]int{}
	all := 0
	seen := map[sink.Copy]bool{}
	for _, c := range deleted {
		if _, there := filled[c]; there && !seen[c] {
			seen[c] = true
			count[c.Node]++
			all++
		}
	}
	var parts []string
	for _, n := range d.stage.nodes {
		if count[n.addr] > 0 {
			parts = append(parts, fmt.Sprintf("%d on %s", count[n.addr], n.name))
		}
	}
	return fmt.Sprintf("%d: %s", all, cmp.Or(strings.Join(parts, ", "), "none"))
}

// introduce says what is about to happen, and on what.
func (d *demo) introduce(logFile string) {
	d.out.Line("%s %s", d.out.Bold("invalidator demo"), d.stage.id)
	for _, l := range d.stage.intro {
		d.out.Line("  %s", l)
	}
	for _, db := range d.stage.databases {
		if about := db.about(); about != "" {
			d.out.Line("  %s", about)
		}
	}
	var nodes []string
	for _, n := range d.stage.nodes {
		nodes = append(nodes, fmt.Sprintf("%s = %s (zone %s)", n.name, n.addr, n.zone))
	}
	d.out.Wrapped("  memcached ", nodes)
	if logFile != "" {
		d.out.Line("  the log of the parts: %s", logFile)
	}
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}

// short is a statement as an error shows it.
func short(statement string) string { return cut(statement, 80) }
