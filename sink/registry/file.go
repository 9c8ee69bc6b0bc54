package registry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"invalidator/sink"
)

// filePoll is how often the files are read where no notice of a change came: network file systems send none.
const filePoll = 5 * time.Second

// File watches a ring record in a file, and hot keys in another.
type File struct {
	*board
	ringFile, hotFile watched // hotFile.path is "" where there is none
	poll              time.Duration
	log               *slog.Logger
	troubles          *troubles

	ringEpoch int64 // of the record that the file holds
	revision  int64 // of the hot keys that were read last
}

// watched is one file as it was last looked at.
type watched struct {
	path string
	read bool
	data []byte
	err  error // why data is not in use, or cannot be had
}

// NewFile watches the ring record in ringPath and, unless hotPath is "", the hot keys there. Both must be good when Run
// starts, unless a record was fed before. A file is best replaced by renaming a whole new one over it. The hot keys' revision is the file's time of change
// in nanoseconds, or one more than before where that did not rise.
func NewFile(ringPath, hotPath string, opts Options, log *slog.Logger) *File {
	b := newBoard(opts, log)
	b.local = true
	return &File{
		board:    b,
		ringFile: watched{path: ringPath},
		hotFile:  watched{path: hotPath},
		poll:     filePoll,
		log:      log,
		troubles: newTroubles(log),
	}
}

// Check reads both files, and says what keeps them from being used. What was last good may be known from elsewhere: see Feed.
func (f *File) Check() error {
	ring, hot := watched{path: f.ringFile.path}, watched{path: f.hotFile.path}
	ring.look(func(data []byte, _ time.Time) error {
		_, err := sink.ParseRecord(ring.path, data)
		return err
	})
	if hot.path != "" {
		hot.look(func(data []byte, _ time.Time) error {
			_, err := sink.ParseHotFile(hot.path, data, 0)
			return err
		})
	}
	return cmp.Or(ring.err, hot.err)
}

// Run implements Watcher.
func (f *File) Run(ctx context.Context) error {
	notices, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the folder of %s: %w (raise fs.inotify.max_user_instances)", f.ringFile.path, err)
	}
	defer notices.Close()
	// Before the first look, so that no change falls between.
	folderErr := f.watchFolders(notices)
	f.load()
	if err := cmp.Or(f.ringFile.err, f.hotFile.err); err != nil && f.View() == nil {
		return err
	}
	f.tell(folderErr)
	tick := time.NewTicker(f.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-notices.Events:
		case err := <-notices.Errors:
			f.log.Warn("registry: a notice of changed files was lost, reading them", "err", err)
		case <-tick.C:
			folderErr = f.watchFolders(notices) // a folder that was replaced has lost its watch
		}
		f.load()
		f.tell(folderErr)
	}
}

// watchFolders watches the folders, not the files: a rename or a swapped link puts another file in the place.
func (f *File) watchFolders(notices *fsnotify.Watcher) error {
	for _, file := range []watched{f.ringFile, f.hotFile} {
		if file.path == "" {
			continue
		}
		if err := notices.Add(filepath.Dir(file.path)); err != nil {
			return fmt.Errorf("watching the folder of %s: %w (until then it is read every %v)", file.path, err, f.poll)
		}
	}
	return nil
}

func (f *File) tell(folderErr error) {
	f.troubles.tell("ring file", f.ringFile.err)
	f.troubles.tell("hot key file", f.hotFile.err)
	f.troubles.tell("notices of changed files", folderErr)
}

// load looks at both files and publishes what is good in them.
func (f *File) load() {
	began := time.Now()
	f.ringFile.look(func(data []byte, _ time.Time) (err error) {
		f.ringEpoch, err = f.offer(f.ringFile.path, data)
		return err
	})
	if f.hotFile.path != "" {
		f.hotFile.look(f.takeHot)
	}
	good := f.ringFile.err == nil && f.hotFile.err == nil
	if good {
		f.confirm(began, f.ringEpoch, math.MaxInt64) // a file has no order among hosts: what it holds is all there is
	}
	if good || f.View() != nil {
		f.put()
	}
}

func (f *File) takeHot(data []byte, changed time.Time) error {
	hot, err := sink.ParseHotFile(f.hotFile.path, data, 0)
	if err != nil {
		return err
	}
	f.revision = max(changed.UnixNano(), f.revision+1)
	now := make(map[string]offered, hot.Len())
	for key, copies := range hot.Each {
		now[key] = offered{f.revision, copies}
	}
	f.setHot(now, f.revision)
	return nil
}

// look reads the file and hands what is new in it to take.
func (w *watched) look(take func(data []byte, changed time.Time) error) {
	info, err := os.Stat(w.path)
	var data []byte
	if err == nil {
		data, err = os.ReadFile(w.path)
	}
	if err != nil {
		w.read, w.err = false, fmt.Errorf("reading registry file: %w", err)
		return
	}
	if w.read && bytes.Equal(data, w.data) {
		return
	}
	w.read, w.data, w.err = true, data, take(data, info.ModTime())
}
