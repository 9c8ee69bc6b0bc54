package replay

import (
	"os"
	"strings"
	"testing"
)

func TestTheDocumentShowsTheseRecords(t *testing.T) {
	doc, err := os.ReadFile("../docs/TOPICS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(control, status...) {
		if !strings.Contains(string(doc), "    "+c.json+"\n") {
			t.Errorf("docs/TOPICS.md lacks %s", c.json)
		}
	}
}
