package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

const sentFile = `version: 1
team: feeds
pools: [user, page]
underivable: [feed]
mappings:
  - name: m
    table: shop.t
    keys:
      - user:{id}
      - {key: "user:hot:{id}", hot: 3}
      - {key: "user:later:{id}", hot: 12, shadow: true}
      - page:{id}
`

// sent are a record's keys, with their pool and hot copies, and what was skipped.
func sent(s *Set, keys ...string) (got []string) {
	var r Result
	s.Keys(&cdc.RowChange{Op: cdc.Keys, Keys: keys}, &r)
	for _, k := range r.Keys {
		got = append(got, fmt.Sprintf("%s %s of %s/%s, hot %d", k.Template.Action, k.Text, k.Template.Team, k.Template.Pool, k.Template.Hot))
	}
	for _, skip := range r.Skipped {
		got = append(got, fmt.Sprintf("skipped: %s: %s", skip.Reason, skip.Detail))
	}
	return got
}

// Every key that is sent is deleted, whatever its pool: with as many hot copies as any template of the pool declares.
func TestSentKeys(t *testing.T) {
	s := setFrom(t, sentFile)
	for _, c := range []struct{ keys, want []string }{
		{[]string{"user:1"}, []string{"delete user:1 of feeds/user, hot 12"}},
		{[]string{"page:1", "feed:42", "page"}, []string{"delete page:1 of feeds/page, hot 0", "delete feed:42 of feeds/feed, hot 0", "delete page of feeds/page, hot 0"}},
		{[]string{"users:1", "x"}, []string{"delete users:1 of /{unclaimed}, hot 0", "delete x of /{unclaimed}, hot 0"}},
		{[]string{"page:1", "page:1"}, []string{"delete page:1 of feeds/page, hot 0"}},
		{[]string{"page:a b", "", "page:2"}, []string{"delete page:2 of feeds/page, hot 0", `skipped: bad_key: the key "page:a b": a space or a control character`, `skipped: bad_key: the key "": it is empty`}},
	} {
		if diff := cmp.Diff(c.want, sent(s, c.keys...)); diff != "" {
			t.Errorf("%q: %s", c.keys, diff)
		}
	}
}

// A key that has no room for the names of its hot copies may be there all the same: it is deleted with those that have room.
func TestSentKeyWithoutRoomForItsCopies(t *testing.T) {
	s := setFrom(t, sentFile)
	for length, want := range map[int]int{247: 12, 248: 9, 249: 0, 250: 0} {
		key := "user:" + strings.Repeat("k", length-len("user:"))
		tmpl, wrong := s.CheckSent(key)
		if wrong != "" || tmpl.Hot != want || tmpl.Pool != "user" {
			t.Errorf("%d bytes: hot %d, want %d (%s)", length, tmpl.Hot, want, wrong)
		}
		if got := sent(s, key); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf("hot %d", want)) {
			t.Errorf("%d bytes: %q", length, got)
		}
	}
	if _, wrong := s.CheckSent("user:" + strings.Repeat("k", 246)); wrong == "" {
		t.Error("memcached takes 251 bytes")
	}
	if tmpl, wrong := s.CheckSent("nobody:" + strings.Repeat("k", 243)); wrong != "" || tmpl.Pool != UnclaimedPool {
		t.Errorf("250 bytes of nobody's: %+v, %s", tmpl, wrong)
	}
}

// Of a pool whose clients send such keys in base64 any byte is good; of every other none that memcached takes for the key's end.
func TestSentBinaryKeys(t *testing.T) {
	s := setFrom(t, "version: 1\nteam: t\npools: [token]\nreaders: meta\nbinary_keys: base64\nmappings: [{name: m, table: a.b, keys: ['token:{id}']}]\n")
	if got := sent(s, "token:a \x00\xff", "tokens:a b"); len(got) != 2 || got[0] != "delete token:a \x00\xff of t/token, hot 0" || !strings.HasPrefix(got[1], "skipped: bad_key") {
		t.Errorf("%q", got)
	}
	if _, wrong := s.CheckSent("token:" + strings.Repeat(" ", 181)); wrong == "" {
		t.Error("187 bytes fit into base64")
	}
}

// What a writer sends in its own transaction has the same hot copies.
func TestMessagesHaveHotCopies(t *testing.T) {
	s := setFrom(t, sentFile)
	for content, want := range map[string]int{"user:1": 12, "feed:1": 0, "user:" + strings.Repeat("k", 244): 0} {
		var r Result
		s.Keys(&cdc.RowChange{Op: cdc.Message, Prefix: "cache", Content: []byte(content)}, &r)
		if len(r.Keys) != 1 || r.Keys[0].Text != content || r.Keys[0].Template.Hot != want {
			t.Errorf("%s: %+v, %+v", content, r.Keys, r.Skipped)
		}
	}
}
