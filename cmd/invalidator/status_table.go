package main

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"invalidator/internal/ui"
)

// printTable is table for a person: its heading bold, and within the columns of a terminal. Without a row below the heading it is nothing.
func printTable(w io.Writer, rows [][]string, numbers ...int) error {
	_, err := io.WriteString(w, tableText(ui.New(w), rows, terminalWidth(w), numbers...))
	return err
}

// tableText is a table within so many columns; 0: as many as it needs.
func tableText(paint *ui.Printer, rows [][]string, width int, numbers ...int) string {
	if len(rows) < 2 {
		return ""
	}
	var t strings.Builder
	if err := table(&t, fit(rows, width, numbers), numbers...); err != nil {
		panic(err) // a strings.Builder
	}
	heading, body, _ := strings.Cut(t.String(), "\n")
	return paint.Bold(heading) + "\n" + body
}

// terminalWidth is how many columns a line may have; 0: as many as it needs.
func terminalWidth(w io.Writer) int {
	columns, _ := terminalSize(w)
	return columns
}

// leastColumn is how narrow fit makes a column of text.
const leastColumn = 8

// fit cuts cells so that rows take no more than so many columns: the widest columns of text first, and the first column, by which a row is named, last. Numbers stay
// whole. What does not fit all the same is the terminal's to break.
func fit(rows [][]string, width int, numbers []int) [][]string {
	var widths []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	over := 2*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	if width <= 0 || over <= 0 {
		return rows
	}
	for over > 0 {
		widest := -1
		for i, w := range widths {
			if i > 0 && !slices.Contains(numbers, i) && w > leastColumn && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			widths[0] = max(widths[0]-over, leastColumn)
			break
		}
		widths[widest]--
		over--
	}
	out := make([][]string, len(rows))
	for n, r := range rows {
		out[n] = slices.Clone(r)
		for i := range r {
			out[n][i] = cut(r[i], widths[i])
		}
		if len(r) > 0 {
			out[n][0] = cutMiddle(r[0], widths[0])
		}
	}
	return out
}

// cutMiddle is cut for a name, of which both ends tell it from others.
func cutMiddle(s string, width int) string {
	runes := []rune(s)
	if width <= 0 || len(runes) <= width {
		return s
	}
	end := width / 2
	return string(runes[:width-1-end]) + "…" + string(runes[len(runes)-end:])
}
