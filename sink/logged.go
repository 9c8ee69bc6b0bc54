package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
)

// LoggedKey is a key in a log line. Keys can hold personal data, so it shows as the first 32 bits of its SHA-256, by which lines about one key are
// found, unless the logger was told otherwise (obs.NewLog). Who tries all keys that there can be finds which it was.
type LoggedKey string

// LogValue implements slog.LogValuer.
func (k LoggedKey) LogValue() slog.Value {
	sum := sha256.Sum256([]byte(k))
	return slog.StringValue("sha256:" + hex.EncodeToString(sum[:4]))
}

// LoggedReason is a reason in a log line that may name a key, or a row's value.
type LoggedReason struct {
	Err    error
	Public string // what shows in its place, unless the logger was told otherwise
}

// LogValue implements slog.LogValuer.
func (r LoggedReason) LogValue() slog.Value { return slog.StringValue(r.Public) }

// LoggedError is an error as it goes into a log line: one that names a key is a LoggedReason without it.
func LoggedError(err error) any {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return LoggedReason{err, fmt.Sprintf("node %s refuses a key: %s", refused.Copy.Node, refused.Answer)}
	}
	var bad *KeyError
	if errors.As(err, &bad) {
		return LoggedReason{err, "a key cannot be in memcached: " + bad.Problem}
	}
	return err
}
