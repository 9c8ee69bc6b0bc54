package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/config"
)

// mappingFiles are the demo's own teams' files.
//
//go:embed mappings/*.yaml
var mappingFiles embed.FS

const (
	connectTimeout = 5 * time.Second // to a service on this machine
	removeTimeout  = 20 * time.Second

	// devUp ends an error about a service that does not answer.
	devUp = " (./dev up starts the services, ./dev status shows them; --embedded needs none)"
)

// stage is what the demo plays on: services, or what stands in for them.
type stage struct {
	id        string // of everything that is made
	dir       string // for files, removed in the end
	intro     []string
	brokers   []string
	nodes     fleet
	publisher publisher
	databases []database
	settle    time.Duration // cache.settle
	updates   time.Duration // between two updates of the latency part
	newFeeder func(config.Source, *slog.Logger) (cdc.Feeder, error)

	made []undo
}

// undo removes something that the demo made.
type undo struct {
	what string
	do   func(context.Context) error
}

// later notes how to remove what was just made, or is about to be.
func (s *stage) later(what string, do func(context.Context) error) {
	s.made = append(s.made, undo{what, do})
}

// strike removes everything, the newest first, whatever became of ctx. What cannot be removed is named in the error.
func (s *stage) strike(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	var failed []error
	for i := len(s.made) - 1; i >= 0; i-- {
		if err := s.made[i].do(ctx); err != nil {
			failed = append(failed, fmt.Errorf("removing %s: %w", s.made[i].what, err))
		}
	}
	s.made = nil
	return errors.Join(failed...)
}

// newStage makes the folder with the mapping files.
func newStage(id string) (*stage, error) {
	s := &stage{id: id, newFeeder: app.NewFeeder}
	var err error
	if s.dir, err = os.MkdirTemp("", "invalidator-demo-"+id+"-"); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	s.later("the folder "+s.dir, func(context.Context) error { return os.RemoveAll(s.dir) })
	return s, os.CopyFS(s.dir, mappingFiles)
}

func (s *stage) mappings() string { return filepath.Join(s.dir, "mappings") }

// config is the invalidator.yaml of the demo's feeder and workers.
func (s *stage) config() (*config.Config, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka: {brokers: [%q], group: demo-%s, topic_prefix: demo-%s, partitions: %d}\n", s.brokers[0], s.id, s.id, partitions)
	fmt.Fprintf(&b, "cache: {settle: %s, ring: %s}\n", s.settle, s.publisher.config())
	fmt.Fprintf(&b, "mappings: {dir: mappings}\nsources:\n")
	for _, d := range s.databases {
		fmt.Fprintf(&b, "  - %s\n", d.source())
	}
	return config.Parse(filepath.Join(s.dir, "invalidator.yaml"), []byte(b.String()))
}

// mappingNames are the files, for the story.
func mappingNames() []string {
	names, err := fs.Glob(mappingFiles, "mappings/*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}
