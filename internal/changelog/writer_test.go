package changelog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// A topic that is made again while a writer knows the old one is written to like any other: nobody has to restart who asks for something there.
func TestWriterOfATopicThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		w, err := changelog.OpenWriter(c.Options)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		write := func(value string) {
			t.Helper()
			if err := w.Write(t.Context(), c.Names.Control, "k", []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		write("before")
		adm := c.Admin(t)
		if _, err := adm.DeleteTopics(t.Context(), c.Names.Control); err != nil {
			t.Fatal(err)
		}
		if _, err := changelog.EnsureTopics(t.Context(), adm, changelog.Settings{}.Own()); err != nil {
			t.Fatal(err)
		}
		write("after")
		time.Sleep(time.Minute) // the writer's client has heard of it, if it had not
		write("later")
		if rs := c.Records(t, c.Names.Control); len(rs) != 2 || string(rs[0].Value) != "after" || string(rs[1].Value) != "later" {
			t.Errorf("the topic has %d records", len(rs))
		}
	})
}
