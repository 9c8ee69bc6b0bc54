//go:build !linux && !darwin

package main

import "io"

// terminalSize is not known here: nothing is cut.
func terminalSize(io.Writer) (columns, lines int) { return 0, 0 }
