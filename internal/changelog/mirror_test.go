package changelog_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// A mirror has the last value of each wanted key, reads only what came since it was last asked, and begins anew where the topic does. What it gave does not change.
func TestStateIsMirrored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		state, err := changelog.OpenState(c.Options, c.Names.State)
		must(t, err)
		defer state.Close()
		m, err := state.Mirror(func(key []byte) bool { return bytes.HasPrefix(key, []byte("a/")) })
		must(t, err)
		defer m.Close()
		ctx := context.Background()
		under := func(st *changelog.State) (got []string) {
			for key, e := range st.Under("a") {
				got = append(got, key+" "+string(e.Value))
			}
			return got
		}
		read := func(want ...string) *changelog.State {
			t.Helper()
			st, err := m.Read(ctx)
			must(t, err)
			if d := cmp.Diff(want, under(st)); d != "" {
				t.Error(d)
			}
			return st
		}
		read()
		for i := range 3 {
			must(t, state.Put(ctx, fmt.Sprintf("a/%d", i), []byte("1")))
		}
		must(t, state.Put(ctx, "b/1", []byte("1")))
		first := read("a/0 1", "a/1 1", "a/2 1")
		if _, there := first.Get("b/1"); there {
			t.Error("it has what nobody wanted")
		}
		must(t, state.Put(ctx, "a/1", []byte("2")))
		must(t, state.Remove(ctx, "a/2"))
		second := read("a/0 1", "a/1 2")
		read("a/0 1", "a/1 2")
		if d := cmp.Diff([]string{"a/0 1", "a/1 1", "a/2 1"}, under(first)); d != "" {
			t.Errorf("the first look is another now: %s", d)
		}
		old, _ := first.Get("a/1")
		if now, _ := second.Get("a/1"); now.Location == old.Location {
			t.Errorf("a later record lies where the former did: %v", now.Location)
		}

		adm := c.Admin(t)
		deleted, err := adm.DeleteTopics(ctx, c.Names.State)
		must(t, err)
		must(t, deleted.Error())
		if _, err := m.Read(ctx); err == nil || !strings.Contains(err.Error(), "topic "+c.Names.State+": it does not exist (feed and run make it when they start)") {
			t.Errorf("without the topic: %v", err)
		}
		specs := changelog.Settings{}.Own()
		at := slices.IndexFunc(specs, func(s changelog.TopicSpec) bool { return s.Name == c.Names.State })
		_, err = changelog.EnsureTopics(ctx, adm, specs[at:at+1])
		must(t, err)
		fresh, err := changelog.OpenState(c.Options, c.Names.State)
		must(t, err)
		defer fresh.Close()
		must(t, fresh.Put(ctx, "a/9", []byte("3")))
		read("a/9 3")
	})
}
