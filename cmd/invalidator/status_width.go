//go:build linux || darwin

package main

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// terminalSize is of the terminal that w is; 0, 0 where it is none, or does not say.
func terminalSize(w io.Writer) (columns, lines int) {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return 0, 0
	}
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, 0
	}
	return int(size.columns), int(size.rows)
}
