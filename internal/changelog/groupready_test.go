package changelog_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

// A member serves once the group has given it its share, be it nothing, and it has begun all of that; no more once its session is lost.
func TestGroupWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		says := func(who string, group *changelog.Group, want string) {
			t.Helper()
			got := strings.Join(group.Waits(), "\n")
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s says %q, want %q", who, got, want)
			}
		}
		says("who has not joined", changelog.NewGroup(changelog.GroupOptions{Group: "workers"}), "the group workers has not given this process its share")

		var broken atomic.Bool
		broken.Store(true)
		l := g.line(t)
		leave := g.join(g.c, l.on, func(o *changelog.GroupOptions) {
			o.Readable = func(changelog.Restored) error {
				if broken.Load() {
					return errors.New("of a later version")
				}
				return nil
			}
		})
		only := g.group
		time.Sleep(10 * time.Second)
		says("who cannot read what was left", only, "1 partitions that the group workers gave to this process have not begun")
		broken.Store(false)
		time.Sleep(30 * time.Second)
		says("who has begun", only, "")

		leaveSecond := g.join(newFakeConsumer())
		time.Sleep(10 * time.Second)
		says("who got nothing", g.group, "")
		says("who kept its partition", only, "")
		l.cut()
		time.Sleep(time.Minute)
		says("who is cut off", only, "has not given this process its share")
		says("who took over", g.group, "")
		leaveSecond()
		leave()
	})
}
