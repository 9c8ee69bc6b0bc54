package mapping

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity grades a Problem.
type Severity string

const (
	SeverityError   Severity = "error"   // the file is left out
	SeverityWarning Severity = "warning" // the file is used, but somebody should look
)

// Problem is one thing wrong in a mapping file, with its place.
type Problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // from 1; 0 where it is about the whole file
	Col      int      `json:"col,omitempty"`  // from 1, in characters
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Hint     string   `json:"hint,omitempty"`
}

// String reads file:line:col: what is wrong (hint).
func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += fmt.Sprintf(":%d:%d", p.Line, p.Col)
	}
	s += ": "
	if p.Severity != SeverityError {
		s += string(p.Severity) + ": "
	}
	s += p.What
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// HasErrors reports whether any of the problems keeps a file out.
func HasErrors(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == SeverityError })
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// didYouMean is a hint that names the option nearest to word, or empty where none is near.
func didYouMean(word string, options []string) string {
	best := Nearest(word, options)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// Nearest is the option that word may be a slip of; empty where none is near.
func Nearest(word string, options []string) string {
	best, least := "", len(word)/3+2 // a third of the letters may be wrong
	for _, o := range options {
		if d := distance(word, o); d < least {
			best, least = o, d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
