package pipeline

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/mapping"
)

// versionOf is a set that reads another column than its predecessor, so that a row decoded for one and mapped by the other gives no
// key.
func versionOf(t testing.TB, n int) *mapping.Set {
	t.Helper()
	text := fmt.Sprintf("version: 1\nteam: profiles\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: ['user:v%d:a:{%[2]s}', 'user:v%[1]d:b:{%[2]s}']\n",
		n, []string{"id", "email"}[n%2])
	f, problems := mapping.Parse("users.yaml", []byte(text))
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	return set
}

// Sets that come into force while changes flow: every change is mapped, by one set, and by the new one from the moment it is
// in force; its later rounds repeat the first, whatever is in force by then.
func TestReloadUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		rounds := map[int64][]string{} // by offset, the keys of each round
		r.w.opts.Observer = func(o Round) {
			var texts []string
			for _, k := range o.Keys {
				texts = append(texts, k.Text)
			}
			slices.Sort(texts)
			mu.Lock()
			defer mu.Unlock()
			rounds[o.Offset] = append(rounds[o.Offset], fmt.Sprint(texts))
		}
		const sets, each = 50, 40
		r.w.opts.Snapshots.SetMapper(versionOf(t, 0))
		r.w.Assign(users, 0, changelog.Restored{})
		last := map[int64]int{} // offset -> the set in force when it was sent
		offset := int64(0)
		for n := range sets {
			for range each {
				r.send(offset, update(fmt.Sprint(offset), fmt.Sprint(offset), fmt.Sprint(offset)))
				last[offset] = n
				offset++
			}
			if n%3 == 0 { // else the swap meets records that wait, or that are being handled
				synctest.Wait()
			}
			r.w.opts.Snapshots.SetMapper(versionOf(t, n+1))
			if n%7 == 0 {
				time.Sleep(settle / 3)
			}
		}
		time.Sleep(3 * settle)
		synctest.Wait()
		r.wantMark(t, offset)
		waited := 0
		for o := range offset {
			var by int
			if got := rounds[o]; len(got) != plainRounds || got[0] != got[1] {
				t.Fatalf("change %d: rounds %q", o, got)
			} else if _, err := fmt.Sscanf(got[0], "[user:v%d:", &by); err != nil || got[0] != fmt.Sprintf("[user:v%d:a:%d user:v%[1]d:b:%[2]d]", by, o) {
				t.Fatalf("change %d is mapped as by no set: %s", o, got[0])
			}
			if by < last[o] {
				t.Errorf("change %d was sent under set %d, and mapped by set %d", o, last[o], by)
			}
			if by > last[o] {
				waited++
			}
		}
		if waited == 0 {
			t.Error("no swap met a change that waited: this test shows nothing")
		}
		t.Logf("%d of %d changes were mapped by a set that came after they were sent", waited, offset)
	})
}
