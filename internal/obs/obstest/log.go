// Package obstest has what tests need to see what a process says of itself.
package obstest

import (
	"bytes"
	"strings"
	"sync"
)

// Log is a log that a test may read while it is written. The zero value is an empty one.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Count is how often part stands in it.
func (l *Log) Count(part string) int { return strings.Count(l.String(), part) }

// With returns the lines that contain part.
func (l *Log) With(part string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
