package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

func TestReadNewestReadsTheEndOfEveryPartition(t *testing.T) {
	c := changelogtest.Start(t)
	if _, err := c.Admin(t).CreateTopics(context.Background(), 2, 1, nil, "dbz.a", "dbz.empty", "other"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		produceAt(t, c, "dbz.a", 0, fmt.Sprint(i), time.Now())
	}
	produceAt(t, c, "dbz.a", 1, "alone", time.Now())
	produceAt(t, c, "other", 0, "not asked for", time.Now())
	var got []string
	topics, _, err := changelog.ReadNewest(t.Context(), c.Options, func(topic string) bool { return strings.HasPrefix(topic, "dbz.") }, 2,
		func(topic string, r changelog.TopicRecord) error {
			got = append(got, fmt.Sprint(topic, " ", r.Partition, "/", r.Offset, " ", string(r.Value)))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dbz.a 0/2 2", "dbz.a 0/3 3", "dbz.a 1/0 alone"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"dbz.a", "dbz.empty"}, topics); diff != "" {
		t.Error(diff)
	}
	enough := errors.New("enough")
	_, _, err = changelog.ReadNewest(t.Context(), c.Options, func(string) bool { return true }, 2, func(string, changelog.TopicRecord) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}
