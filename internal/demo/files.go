package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// filePublisher publishes in files, where there is no etcd. A file is replaced by renaming a whole one over it.
type filePublisher struct {
	dir    string
	copies map[string]map[string]int
}

func newFiles(dir string) (*filePublisher, error) {
	p := &filePublisher{dir, map[string]map[string]int{}}
	return p, p.write("hot.json", []byte("{}")) // the workers want both files at their start
}

func (p *filePublisher) about() string { return "files ring.json and hot.json in place of etcd" }

func (p *filePublisher) config() string { return "{file: ring.json, hot_file: hot.json}" }

func (p *filePublisher) ring(_ context.Context, record []byte) error {
	return p.write("ring.json", record)
}

func (p *filePublisher) hot(_ context.Context, key string, copies int) error {
	p.copies[key] = map[string]int{"copies": copies}
	data, err := json.Marshal(p.copies)
	if err != nil {
		return fmt.Errorf("encoding hot keys: %w", err)
	}
	return p.write("hot.json", data)
}

func (p *filePublisher) write(name string, data []byte) error {
	next := filepath.Join(p.dir, "."+name)
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(p.dir, name))
}

// remove does nothing: the folder goes as a whole.
func (p *filePublisher) remove(context.Context) error { return nil }
