package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"invalidator/mapping"
)

// What the nodes' protocol cannot say is told when it is checked, when a worker starts and when a file comes into force.
func TestBinaryKeysUnderTheClassicProtocol(t *testing.T) {
	const file = "version: 1\nteam: a\npools: [u]\nreaders: meta\nbinary_keys: base64\nmappings: [{name: u, table: shop.users, keys: [\"u:{url}\"]}]\n"
	const want = "users.yaml:5:14: the configuration has cache.protocol: classic, which cannot delete keys with spaces or control bytes"
	for protocol, told := range map[string]int{"classic": 1, "meta": 0} {
		t.Run(protocol, func(t *testing.T) {
			dir := t.TempDir()
			c := parse(t, dir, "cache: {protocol: "+protocol+"}\nmappings: {dir: mappings.d}\nsources: [{name: shop, type: mysql, hosts: [127.0.0.1:1], user: u, include: [shop.*]}]\n")
			if err := os.WriteFile(filepath.Join(dir, "mappings.d", "users.yaml"), []byte(file), 0o644); err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, f := range checkMappings(t.Context(), c, quiet) {
				if strings.Contains(strings.ReplaceAll(f.String(), dir+"/mappings.d/", ""), "error: mapping "+want) {
					found++
				}
			}
			if found != told {
				t.Errorf("the check tells it %d times, want %d", found, told)
			}
			set, problems, err := mapping.Load(filepath.Join(dir, "mappings.d"))
			if err != nil || len(problems) > 0 {
				t.Fatal(err, problems)
			}
			var log bytes.Buffer
			w := &Worker{Config: c, Log: slog.New(slog.NewTextHandler(&log, nil))}
			if w.mapper(set) != mapping.Mapper(set) || strings.Count(log.String(), want) != told {
				t.Errorf("the worker's log, want it %d times:\n%s", told, &log)
			}
		})
	}
}
