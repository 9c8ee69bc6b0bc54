package deploy

import (
	"strings"
	"testing"
)

// What the units' machine has: /etc/invalidator, with its secrets and mapping files. The listener is the machine's own.
func TestUnitsConfigurationLoads(t *testing.T) {
	c := loadConfig(t, read(t, "deploy/systemd/invalidator.yaml"), "/etc/invalidator")
	if c.Mappings.Dir != "/etc/invalidator/mappings.d" || !strings.HasPrefix(c.Admin.Listen, "127.0.0.1:") {
		t.Errorf("mappings.dir %q, admin.listen %q", c.Mappings.Dir, c.Admin.Listen)
	}
}

// The two units differ in their command and in what it may use, and in nothing that keeps others out.
func TestUnitsAreEquallyHardened(t *testing.T) {
	const begin = "# It opens sockets"
	_, feeder, ok1 := strings.Cut(read(t, "deploy/systemd/invalidator-feeder.service"), begin)
	_, worker, ok2 := strings.Cut(read(t, "deploy/systemd/invalidator-worker.service"), begin)
	if !ok1 || !ok2 || feeder != worker {
		t.Errorf("the units differ behind %q:\n%s\n%s", begin, feeder, worker)
	}
}
