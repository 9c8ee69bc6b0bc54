package app

import (
	"strings"
	"testing"

	"invalidator/sink"
)

// Each thing that a record may name as putting copies where no ring says is told with its danger.
func TestCheckNamesWhatNoRingSays(t *testing.T) {
	r, err := sink.ParseRecord("ring", []byte(`{"epoch": 1, "elsewhere": ["auto_eject_hosts", "gutter", "failover"], "shards": [{"id": "a", "primary": {"addr": "a:1"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	found := elsewhere(r)
	if len(found) != 3 || len(strays) != 3 {
		t.Fatalf("got %v", found)
	}
	for i, f := range found {
		if f.Severity != "warning" || f.Where != "ring" || !strings.HasPrefix(f.What, r.Elsewhere[i]+": ") || !strings.Contains(f.What, "deletes do not reach them") {
			t.Errorf("got %v", f)
		}
	}
	if r.Elsewhere = nil; elsewhere(r) != nil {
		t.Error("something is found where nothing is named")
	}
}
