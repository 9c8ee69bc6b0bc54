// Package ui writes text for a person at a terminal: plain lines, with colours only where somebody sees them.
//
// Colours are used when the output is a terminal, NO_COLOR is not set and TERM is not dumb; otherwise not a byte of them is
// written. The package decides nothing about what is said.
//
// Callers: internal/demo.
package ui
