// Reference writes docs/REFERENCE.md: every key of the configuration, from the fields of internal/config, and every metric, from the
// registries of a worker and a feeder that run. Say it in the repository's root after either has changed:
//
//	go run ./internal/tools/reference
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

const page = "docs/REFERENCE.md"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := write(ctx, "."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context, root string) error {
	text, err := reference(ctx, root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, page), []byte(text), 0o644)
}

// reference is the page, of the repository at root.
func reference(ctx context.Context, root string) (string, error) {
	sections, err := configuration(filepath.Join(root, "internal/config"))
	if err != nil {
		return "", fmt.Errorf("reading the configuration's keys: %w", err)
	}
	metrics, err := metrics(ctx)
	if err != nil {
		return "", fmt.Errorf("asking a worker and a feeder for their metrics: %w", err)
	}
	return render(sections, metrics), nil
}
