package mapping

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func promotionFile(t *testing.T, readers, rest string) (*Set, []Problem) {
	t.Helper()
	f, problems := Parse("f.yaml", []byte("version: 1\nteam: t\npools: [user]\nunderivable: [page, feed]\nreaders: "+readers+"\n"+rest+
		"\nmappings:\n  - {name: m, table: shop.users, keys: ['user:{id}']}\n"))
	if f == nil {
		return nil, problems
	}
	set, more := NewSet([]*File{f})
	return set, append(problems, more...)
}

func TestWhatAPromotionDoesToUnderivablePools(t *testing.T) {
	for rest, want := range map[string][]Underived{
		"":                            {{"feed", 0}, {"page", 0}},
		"on_promotion: {feed: stale}": {{"feed", 30 * time.Second}, {"page", 0}},
		"on_promotion: {feed: delete, page: stale}":  {{"feed", 0}, {"page", 30 * time.Second}},
		"on_promotion: {feed: delete, page: delete}": {{"feed", 0}, {"page", 0}},
	} {
		set, problems := promotionFile(t, "meta", rest)
		if set == nil || len(problems) > 0 {
			t.Errorf("%s: %v", rest, problems)
			continue
		}
		if d := cmp.Diff(want, set.Underived()); d != "" {
			t.Errorf("%s: %s", rest, d)
		}
	}
}

// Readers that ask by a classic get take a stale value for a good one.
func TestAPromotionMarksNothingStaleForClassicReaders(t *testing.T) {
	set, problems := promotionFile(t, "classic", "on_promotion: {feed: stale}")
	if set == nil || len(problems) != 1 || problems[0].Severity != SeverityWarning || !strings.Contains(problems[0].String(), "the file's readers are classic") {
		t.Fatalf("%v", problems)
	}
	if d := cmp.Diff([]Underived{{"feed", 0}, {"page", 0}}, set.Underived()); d != "" {
		t.Error(d)
	}
}

func TestPromotionProblems(t *testing.T) {
	for rest, want := range map[string]string{
		"on_promotion: {fed: stale}":    `pool "fed" is not one of this file's underivable ones (did you mean "feed"?)`,
		"on_promotion: {user: stale}":   `on_promotion is for underivable pools, and rows give the keys of "user"`,
		"on_promotion: {feed: stall}":   `on_promotion must be delete or stale, not "stall" (did you mean "stale"?)`,
		"on_promotion: {feed: [stale]}": "on_promotion must be",
		"on_promotion: [feed]":          "on_promotion must be pools with delete or stale",
	} {
		set, problems := promotionFile(t, "meta", rest)
		if set != nil || len(problems) == 0 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%s: %v, want %s", rest, problems, want)
		}
	}
}

func TestDiffTellsWhatPromotionsDoOtherwise(t *testing.T) {
	before, _ := promotionFile(t, "meta", "")
	after, _ := promotionFile(t, "meta", "on_promotion: {feed: stale}")
	want := []Change{{Kind: Changed, Family: "feed:*", Pool: "feed", Team: "t", What: []string{"on_promotion: delete -> stale"}}}
	if d := cmp.Diff(want, Diff(before, after)); d != "" {
		t.Error(d)
	}
}
