package changelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// A follower hands over what came since it was last asked, of the keys that are wanted, with removals; and begins anew where the topic does.
func TestStateIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		state, err := changelog.OpenState(c.Options, c.Names.State)
		must(t, err)
		defer state.Close()
		f, err := state.FollowAll(func(key []byte) bool { return bytes.HasPrefix(key, []byte("a/")) })
		must(t, err)
		defer f.Close()
		ctx := context.Background()
		read := func(want ...string) {
			t.Helper()
			var got []string
			must(t, f.Read(ctx, func(key string, value []byte) {
				if value == nil {
					value = []byte("removed")
				}
				got = append(got, key+" "+string(value))
			}))
			slices.Sort(got) // keys lie on several partitions
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		}
		put := func(key, value string) { must(t, state.Put(ctx, key, []byte(value))) }
		read()
		var want []string
		for i := range 20 {
			put(fmt.Sprintf("a/%02d", i), "1")
			put(fmt.Sprintf("b/%02d", i), "1")
			want = append(want, fmt.Sprintf("a/%02d 1", i))
		}
		read(want...)
		read()
		put("a/03", "2")
		put("a/03", "3")
		must(t, state.Remove(ctx, "a/04", "b/04"))
		read("a/03 2", "a/03 3", "a/04 removed")
		read()

		adm := c.Admin(t)
		_, err = adm.DeleteTopics(ctx, c.Names.State)
		must(t, err)
		if err := f.Read(ctx, func(string, []byte) {}); err == nil || errors.Is(err, changelog.ErrMadeAgain) {
			t.Errorf("reading a topic that is gone: %v", err)
		}
		_, err = changelog.EnsureTopics(ctx, adm, changelog.Settings{}.Own())
		must(t, err)
		again, err := changelog.OpenState(c.Options, c.Names.State)
		must(t, err)
		defer again.Close()
		must(t, again.Put(ctx, "a/00", []byte("4")))
		if err := f.Read(ctx, func(string, []byte) {}); !errors.Is(err, changelog.ErrMadeAgain) {
			t.Errorf("reading a topic that was made again: %v", err)
		}
		read("a/00 4")
	})
}

// Where logs end is told of the topics that are there, and the others are named.
func TestFollowerTellsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		state, err := changelog.OpenState(c.Options, c.Names.State)
		must(t, err)
		defer state.Close()
		f, err := state.FollowAll(func([]byte) bool { return true })
		must(t, err)
		defer f.Close()
		ctx := context.Background()
		if ends, gone, err := f.Ends(ctx, nil); len(ends)+len(gone) != 0 || err != nil {
			t.Errorf("of no topic: %v, %v, %v", ends, gone, err)
		}
		must(t, state.Put(ctx, "a", []byte("1")))
		ends, gone, err := f.Ends(ctx, []string{c.Names.State, "none.b", "none.a"})
		var total int64
		for _, end := range ends {
			total += end
		}
		if err != nil || len(ends) != changelog.StatePartitions || total != 1 || !slices.Equal(gone, []string{"none.a", "none.b"}) {
			t.Errorf("ends %v, gone %v, %v", ends, gone, err)
		}
	})
}
