package obs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"invalidator/sink"
)

// Keys, and reasons that may name one, show as whoever starts the process says: by themselves as a hash.
func TestKeysInLogs(t *testing.T) {
	refused := fmt.Errorf("deleting: %w", &sink.RefusedError{Copy: sink.Copy{Node: "n:1", Key: "user:ann@x.test"}, Answer: "SERVER_ERROR"})
	bad := &sink.KeyError{Key: "user:ann@x.test ", Problem: "a space"}
	for keys, want := range map[string][]string{
		"hash": {"key=sha256:09f4fc1d", "why=(elsewhere)", "refused=\"node n:1 refuses a key: SERVER_ERROR\"", "bad=\"a key cannot be in memcached: a space\"", "with=sha256:", "plain=boom"},
		"none": {"key=***", "why=(elsewhere)", "refused=\"node n:1 refuses a key: SERVER_ERROR\"", "with=***", "plain=boom"},
		"full": {"key=user:ann@x.test", "why=\"row ann@x.test\"", `refused="deleting: node n:1 refuses key \"user:ann@x.test\": SERVER_ERROR"`, "with=user:ann@x.test", "plain=boom"},
	} {
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			log, err := NewLog(&b, format, "info", keys)
			if err != nil {
				t.Fatal(err)
			}
			log.With("with", sink.LoggedKey("user:ann@x.test")).Info("told", "key", sink.LoggedKey("user:ann@x.test"),
				"why", sink.LoggedReason{Err: errors.New("row ann@x.test"), Public: "(elsewhere)"},
				"refused", sink.LoggedError(refused), "bad", sink.LoggedError(bad), "plain", sink.LoggedError(errors.New("boom")))
			if got := b.String(); keys != "full" && strings.Contains(got, "ann@") {
				t.Errorf("%s, %s: %s", format, keys, got)
			}
			for _, w := range want {
				if got := b.String(); format == "text" && !strings.Contains(got, w) {
					t.Errorf("%s: no %s in %s", keys, w, got)
				}
			}
		}
	}
	if _, err := NewLog(nil, "text", "info", "some"); err == nil || !strings.Contains(err.Error(), "hash, full or none") {
		t.Errorf("%v", err)
	}
}
