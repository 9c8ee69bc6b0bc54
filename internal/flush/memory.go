//go:build linux || darwin

package flush

import "syscall"

// allocate returns so many bytes that the collector does not see: in its heap they would count as much again for what it lets lie about. free gives them back. A page counts as
// memory when it was written first.
func allocate(size int) (memory []byte, free func()) {
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil { // the heap does as well
		return make([]byte, size), func() {}
	}
	return memory, func() { syscall.Munmap(memory) } //nolint:errcheck // what was mapped can be
}
