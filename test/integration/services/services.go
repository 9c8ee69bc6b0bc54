// Package services tells integration tests where the local services of ./dev listen.
package services

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Addr is the address of a service by its name in deploy/local/ports.env: Addr("POSTGRES") is 127.0.0.1:POSTGRES_PORT.
// DEV_PORTS_FILE names another file, as it does for ./dev. It panics where the port is not told: no test can go on then.
func Addr(name string) string {
	file := os.Getenv("DEV_PORTS_FILE")
	if file == "" {
		file = filepath.Join(Root(), "deploy", "local", "ports.env")
	}
	f, err := os.Open(file)
	if err != nil {
		panic(fmt.Errorf("opening the list of ports: %w", err))
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if port, ok := strings.CutPrefix(lines.Text(), name+"_PORT="); ok {
			return "127.0.0.1:" + port
		}
	}
	panic(fmt.Sprintf("%s has no line %s_PORT=", file, name))
}

// Root is the module's folder: tests run in their package's.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(fmt.Errorf("finding the module's folder: %w", err))
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}
