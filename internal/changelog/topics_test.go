package changelog_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"invalidator/internal/changelog"
)

// Workers read every topic that a feeder makes, however a table is called, and none of the service's own.
func TestChangeTopicsMatchesEveryChangeTopic(t *testing.T) {
	for _, tc := range []struct{ schema, table string }{
		{"shop", "users"}, {"shop", "users.v2"}, {"a.b", "c.d"}, {"shop", "user names"}, {"магазин", "пользователи"},
		{strings.Repeat("店", 64), "u"}, {"s", strings.Repeat("店", 64)}, {strings.Repeat("s", 63), strings.Repeat("t", 200)},
	} {
		name := changelog.ChangeTopic("shop", tc.schema, tc.table)
		if !changelog.ChangeTopics("shop").MatchString(name) {
			t.Errorf("table %s.%s: nobody reads its topic %s", tc.schema, tc.table, name)
		}
		if changelog.ChangeTopics("shop2").MatchString(name) || changelog.ChangeTopics("hop").MatchString(name) {
			t.Errorf("another source reads %s", name)
		}
	}
	for _, name := range []string{changelog.MessageTopic("shop"), changelog.MessageTopic("shop") + "-0123456789abcdef"} {
		if !changelog.ChangeTopics("shop").MatchString(name) {
			t.Errorf("nobody reads the logical messages on %s", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.StringN(1, 30, 60).Draw(t, "prefix")
		name := changelog.ChangeTopic(prefix, rapid.StringN(1, 64, 256).Draw(t, "schema"), rapid.StringN(1, 64, 256).Draw(t, "table"))
		if !changelog.ChangeTopics(prefix).MatchString(name) {
			t.Fatalf("nobody reads %s", name)
		}
	})
	for _, own := range changelog.NamesFor("").All() {
		if changelog.ChangeTopics(changelog.DefaultPrefix).MatchString(own) {
			t.Errorf("%s is taken for a change topic", own)
		}
	}
}
