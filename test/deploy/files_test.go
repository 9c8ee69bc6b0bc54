package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"invalidator/internal/config"
)

// root is the repository.
const root = "../.."

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// loadConfig loads a sample as a machine or a pod has it, whose mounts are the folders that it sees. What the sample names must
// lie in one of them; secrets are made.
func loadConfig(t *testing.T, text string, mounts ...string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	for _, path := range absolute.FindAllString(text, -1) {
		if !slices.ContainsFunc(mounts, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
			t.Errorf("%s lies in no folder that is there: %q", path, mounts)
		}
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse("/etc/invalidator/invalidator.yaml", []byte(absolute.ReplaceAllString(text, dir+"$0")))
	if err != nil {
		t.Fatal(err)
	}
	if c.Mappings.Dir = strings.TrimPrefix(c.Mappings.Dir, dir); c.Kafka.Brokers == nil || c.Sources == nil || c.Cache.Ring.Etcd == nil {
		t.Errorf("a sample that neither a feeder nor a worker can run with: %+v", c)
	}
	return c
}

// absolute is a file of a configuration.
var absolute = regexp.MustCompile(`/(?:etc|secrets|mappings\.d)\b[A-Za-z0-9./_-]*`)
