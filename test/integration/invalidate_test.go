//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

const invalidateMapping = `version: 1
team: items
pools: [item]
underivable: [feed]
mappings:
  - {name: item, table: shop.items, keys: ["item:{id}", {key: "item:top:{id}", hot: 2}]}
`

// sending is a fleet of one worker, whose keys somebody sends, and its cache.
type sending struct {
	t        *testing.T
	p        *harness.Pipeline
	topology *sink.Topology
	nodes    map[string]*harness.Node
	admin    string // host:port of the worker's listener
	hot      map[string]int
}

const postToken = "a long token"

// newSending starts a worker that has the mappings in force.
func newSending(t *testing.T) *sending {
	t.Helper()
	nodes := harness.StartNodes(t, 4)
	record := sink.Record{KeyPrefix: "app:", Shards: shards(nodes)}
	id := harness.Unique()
	s := &sending{t: t, nodes: map[string]*harness.Node{}, admin: harness.FreeAddr(t), hot: map[string]int{"feed:1": 3}}
	for _, n := range nodes {
		s.nodes[n.Addr] = n
	}
	s.p = harness.New(t, harness.Options{
		ID: id, Mappings: map[string]string{"items.yaml": invalidateMapping}, Record: record, Settle: 50 * time.Millisecond,
		Sources: fmt.Sprintf("  - {name: orders, topics: {pattern: '%s-orders\\..*', format: debezium}, first_start: latest}\n", id),
	})
	s.p.Hot("feed:1", 3)
	record.Epoch, record.At, record.Kind = 1, time.Now(), sink.KindPoints160
	var err error
	if s.topology, err = sink.NewTopology(&record); err != nil {
		t.Fatal(err)
	}
	harness.Start(t, "run", "run", "--config", s.p.Variant("admin", "mappings: {dir", fmt.Sprintf("admin: {listen: %q, token: %q}\nmappings: {dir", s.admin, postToken)))
	harness.Await(t, "the mapping file in force", func() (bool, string) {
		code, _, stderr := s.command("", "item:1", "--dry-run")
		return code == 0, stderr
	})
	return s
}

// command runs invalidate.
func (s *sending) command(stdin string, args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(s.t.Context(), harness.Binary(s.t), append([]string{"invalidate", "--config", s.p.File}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// post asks the worker's listener.
func (s *sending) post(token, body string) (status int, answer string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.admin+"/v1/invalidate", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// copies are all places of a key: on primary and replica, of the plain key and of its hot copies.
func (s *sending) copies(key string) []sink.Copy {
	hot := s.hot[key]
	if strings.HasPrefix(key, "item:") {
		hot = 2 // the most that a template of the pool declares
	}
	return s.topology.AppendCopies(nil, key, hot)
}

func (s *sending) store(keys ...string) {
	s.t.Helper()
	for _, key := range keys {
		for _, c := range s.copies(key) {
			if err := s.nodes[c.Node].Set(c.Key, "stale"); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// left are the copies of keys that are there, but for those on a node that cannot be asked.
func (s *sending) left(keys []string, but string) (left []sink.Copy) {
	s.t.Helper()
	for _, key := range keys {
		for _, c := range s.copies(key) {
			if c.Node == but {
				continue
			}
			hit, err := s.nodes[c.Node].Get(c.Key)
			if err != nil {
				s.t.Fatal(err)
			}
			if hit.Found {
				left = append(left, c)
			}
		}
	}
	return left
}

func (s *sending) awaitGone(keys []string, but string) {
	s.t.Helper()
	harness.Await(s.t, "every copy to go", func() (bool, string) {
		left := s.left(keys, but)
		return len(left) == 0, fmt.Sprint(left)
	})
}

// sentTo are keys of which each has a copy on a node.
func (s *sending) sentTo(node string) (keys []string) {
	for i := 0; len(keys) < 20; i++ {
		key := fmt.Sprintf("item:%d", i)
		for _, c := range s.copies(key) {
			if c.Node == node {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// Keys that are sent are gone from every copy when the command, which waits, is back: primary, replica, the hot copies of their pool and of the registry. Others stay.
func TestInvalidate(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	keys := []string{"feed:1", "feed:2", "item:1", "item:2", "nobody:1"}
	s.store(append(keys, "item:3")...)
	if code, stdout, stderr := s.command(strings.Join(keys, "\n"), "-", "--wait", "--reason", "wrong prices"); code != 2 || !strings.Contains(stderr, `pool "nobody" is none of the fleet's`) {
		t.Errorf("a pool of nobody's: exit %d, %s%s", code, stdout, stderr)
	}
	stored := 0
	for _, key := range keys {
		stored += len(s.copies(key))
	}
	if left := s.left(keys, ""); len(left) != stored {
		t.Errorf("refused, and of %d copies %d are left", stored, len(left))
	}
	code, stdout, stderr := s.command(strings.Join(keys, "\n"), "-", "--wait", "--force")
	if code != 0 || stdout != "5 keys are deleted on every copy\n" {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if left := s.left(keys, ""); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if left := s.left([]string{"item:3"}, ""); len(left) != len(s.copies("item:3")) {
		t.Errorf("of another key %v are left", left)
	}
}

// A node that is away while keys are sent is told of, owes them, and is paid when it is back. So it is with keys that are posted.
func TestInvalidateWhileANodeIsAway(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	away := s.topology.AppendCopies(nil, "item:0", 0)[1] // a replica
	for name, send := range map[string]func(keys []string){
		"command": func(keys []string) {
			code, stdout, stderr := s.command(strings.Join(keys, "\n"), "-", "--wait", "--json")
			var got struct {
				Keys int
				Owed []struct{ Owes, Name string }
			}
			if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || got.Keys != len(keys) || len(got.Owed) != 1 || got.Owed[0].Owes != "node" || got.Owed[0].Name != away.Node {
				t.Errorf("exit %d, %v: %s%s", code, err, stdout, stderr)
			}
		},
		"post": func(keys []string) {
			status, answer := s.post(postToken, `{"keys":["`+strings.Join(keys, `","`)+`"],"reason":"test"}`)
			if status != http.StatusAccepted || !strings.Contains(answer, fmt.Sprintf(`"keys":%d,`, len(keys))) {
				t.Errorf("%d %s", status, answer)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := s.sentTo(away.Node)
			s.store(keys...)
			node := s.nodes[away.Node]
			node.Freeze()
			send(keys)
			s.awaitGone(keys, away.Node)
			harness.Await(t, "the node to be off", func() (bool, string) {
				owed, err := s.p.Owed(t.Context())
				return err == nil && strings.Contains(strings.Join(owed, " "), away.Node), fmt.Sprint(owed, err)
			})
			node.Thaw()
			s.awaitGone(keys, "")
			harness.Await(t, "the node to be paid", func() (bool, string) {
				owed, err := s.p.Owed(t.Context())
				return err == nil && len(owed) == 0, fmt.Sprint(owed, err)
			})
		})
	}
}

// Who has another token, or none, deletes nothing.
func TestPostWithAnotherToken(t *testing.T) {
	t.Parallel()
	s := newSending(t)
	s.store("item:1")
	for _, token := range []string{"", "another"} {
		if status, answer := s.post(token, `{"keys":["item:1"]}`); status != http.StatusUnauthorized || !strings.Contains(answer, `{"error":"`) {
			t.Errorf("%q: %d %s", token, status, answer)
		}
	}
	if status, answer := s.post(postToken, `{"keys":["item:2"]}`); status != http.StatusAccepted { // behind them in the log, if they were there
		t.Errorf("%d %s", status, answer)
	}
	s.awaitGone([]string{"item:2"}, "")
	if left := s.left([]string{"item:1"}, ""); len(left) != len(s.copies("item:1")) {
		t.Errorf("left are %v", left)
	}
}
