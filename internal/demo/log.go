package demo

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"invalidator/internal/obs"
	"invalidator/internal/ui"
)

// logFile is where the parts log to, out of the story's way.
type logFile struct {
	*slog.Logger
	file *os.File // nil: the logger is the caller's
}

// openLog makes a file where log is nil.
func openLog(log *slog.Logger, id string) (*logFile, error) {
	if log != nil {
		return &logFile{log, nil}, nil
	}
	f, err := os.Create(filepath.Join(os.TempDir(), "invalidator-demo-"+id+".log"))
	if err != nil {
		return nil, fmt.Errorf("making a log file: %w", err)
	}
	log, err = obs.NewLog(f, "text", "info", "full")
	return &logFile{log, f}, err
}

func (l *logFile) name() string {
	if l.file == nil {
		return ""
	}
	return l.file.Name()
}

// tailLines are shown of the log after an unexpected error.
const tailLines = 20

// close removes the file when all went well. Otherwise it stays and is named, and its end shown when the error was neither
// a stale copy nor somebody's wish.
func (l *logFile) close(out *ui.Printer, err error, interrupted bool) {
	if l.file == nil {
		return
	}
	l.file.Close()
	data, readErr := os.ReadFile(l.name())
	if err == nil || readErr != nil || len(data) == 0 {
		os.Remove(l.name())
		return
	}
	if !errors.Is(err, ErrFailed) && !interrupted {
		lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
		out.Line("\nthe end of the log:")
		for _, line := range lines[max(0, len(lines)-tailLines):] {
			out.Line("  %s", line)
		}
	}
	out.Line("the log of the parts is in %s", l.name())
}
