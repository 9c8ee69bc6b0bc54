package pipeline

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/sink"
)

// binaryKeys is actions of a file whose clients send keys in base64 where they have to.
func binaryKeys(entries string) string {
	return strings.Replace(actions("meta", entries), "readers: meta\n", "readers: meta\nbinary_keys: base64\n", 1)
}

// reasonsParker keeps why records were parked.
type reasonsParker struct {
	mu  sync.Mutex
	got []string
}

func (p *reasonsParker) ParkFrom(_ context.Context, _ changelog.Partition, _ changelog.Record, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, reason)
	return nil
}

func (p *reasonsParker) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

// updateBytes is update of a table whose email is bytes.
func updateBytes(before, after string) *cdc.RowChange {
	c := update("1", before, after)
	c.Columns = cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint unsigned", Key: true}, {Name: "email", Type: "varbinary(200)"}})
	for _, image := range []cdc.Row{c.Before, c.After} {
		image[1].Kind = cdc.Bytes
	}
	return c
}

// Such a key is deleted as any other: in every round, on every owner, with its hot copies and with the
// ring's prefix.
func TestBinaryKeysAreDeletedInEveryRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, binaryKeys(`{key: "user:{email}", hot: 1}, {key: "page:{email}", action: stale, stale_for: 20s}`))
		r.views.Store(view(t, strings.Replace(plainRing, `"epoch"`, `"key_prefix":"app:","epoch"`, 1), map[string]int{"page:\xff\r\n": 1}))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, updateBytes("a b\x00", "\xff\r\n"))
		var want []string
		for _, node := range []string{"n1 ", "n2 "} {
			for _, key := range []string{"page:\xff\r\n stale 20s", "page:\xff\r\n#1 stale 20s", "page:a b\x00 stale 20s", "user:\xff\r\n", "user:\xff\r\n#1", "user:a b\x00", "user:a b\x00#1"} {
				want = append(want, node+"app:"+key)
			}
		}
		slices.Sort(want)
		for round := 1; round <= plainRounds; round++ {
			synctest.Wait()
			if got := r.nodes.take(); !slices.Equal(got, want) {
				t.Errorf("round %d\n got %q\nwant %q", round, got, want)
			}
			time.Sleep(settle)
		}
		synctest.Wait()
		r.wantMark(t, 1)
		if n := len(r.parker.offsets()); n != 0 {
			t.Errorf("parked %d times", n)
		}
	})
}

// A change's key that nothing can delete is parked with its record once; the row's other keys are deleted.
func TestH10_BinaryKeysThatCannotBeSaidAreParked(t *testing.T) {
	const classic = `mapping user, template user:{email}: key "user:a b" cannot be in memcached: it has a space or a control byte, and the nodes are spoken to in the classic protocol, which cannot say it (cache.protocol)`
	long := strings.Repeat("x", 177) + " " // with user: 183 bytes, and the prefix has 4
	for name, tc := range map[string]struct {
		classic       bool
		email, prefix string
		want          string
	}{
		"the classic protocol":   {true, "a b", "", classic},
		"too long by the prefix": {false, long, "app:", `mapping user, template user:{email}: key "app:user:` + long + `" cannot be in memcached: it is 187 bytes long, the limit is 186 for one that has to be sent in base64`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigOf(t, binaryKeys(`"user:{id}", "user:{email}"`))
				parker := &reasonsParker{}
				r.w.opts.Classic, r.w.opts.Parker = tc.classic, parker
				r.views.Store(view(t, strings.Replace(plainRing, `"epoch"`, `"key_prefix":"`+tc.prefix+`","epoch"`, 1), nil))
				r.w.Assign(users, 0, changelog.Restored{})
				r.send(0, update("1", tc.email, tc.email))
				time.Sleep(2 * settle)
				synctest.Wait()
				if got, want := r.nodes.take(), []string{"n1 " + tc.prefix + "user:1", "n2 " + tc.prefix + "user:1"}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				if got := parker.take(); !slices.Equal(got, []string{tc.want}) {
					t.Errorf("parked\n got %q\nwant %q", got, tc.want)
				}
				if n := r.count(t, "parked_total", "bad_key"); n != 1 {
					t.Errorf("counted %v", n)
				}
				r.wantMark(t, 1)
			})
		})
	}
}

// JSON has no text for bytes that are no UTF-8: a request has them beside.
func TestRefreshOfABinaryKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, binaryKeys(`{key: "page:{email}", action: refresh}`))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, updateBytes("plain", "\xff b"))
		time.Sleep(2 * settle)
		synctest.Wait()
		got := map[string]string{}
		for _, q := range r.refresher.take() {
			got[q.Key] = q.KeyBase64
		}
		if len(got) != 2 || got["page:plain"] != "" || got["page:\xff b"] != "cGFnZTr/IGI=" {
			t.Errorf("got %q", got)
		}
	})
}

func TestShadowOfABinaryKeyIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, binaryKeys(`"user:{id}", {key: "page:{email}", shadow: true}`))
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, updateBytes("\xff b", "\xff b"))
		time.Sleep(2 * settle)
		synctest.Wait()
		if want := "key=" + sink.LoggedKey("page:\xff b").LogValue().String(); !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, r.log.String())
		}
	})
}

// A row's key that is bytes, of a record whose own key is no JSON, is text in a request.
func TestRowKeyOfBytes(t *testing.T) {
	row := &cdc.RowChange{Columns: cdc.NewColumns([]cdc.Column{{Name: "id"}}), KeyColumns: []string{"id"},
		After: cdc.Row{{Kind: cdc.Bytes, S: "\x00\xff"}}}
	if got := string(rowKey(row, []byte{0, 0, 0, 0, 1})); got != `{"id":"AP8="}` {
		t.Errorf("got %s", got)
	}
}
