package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/cdc/envelope"
	"invalidator/internal/app"
	"invalidator/internal/changelog"
)

// sentBench is a fake Kafka with a fleet's mapping file and no worker.
type sentBench struct{ *gapBench }

func newSentBench(t *testing.T) *sentBench {
	b := newGapBench(t)
	state, err := changelog.OpenState(b.kafka, b.names.State)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	text := "version: 1\nteam: t\npools: [user]\nunderivable: [feed]\nmappings:\n  - {name: m, table: a.b, keys: ['user:{id}']}\n"
	if err := state.PutMapping(t.Context(), "invalidator", changelog.MappingFile{Name: "t.yaml", Team: "t", Text: text, Since: time.Now()}, changelog.SavedMapping{}); err != nil {
		t.Fatal(err)
	}
	return &sentBench{b}
}

// invalidate runs the command, and wants its exit code and parts of what it says.
func (b *sentBench) invalidate(code int, stdout, stderr, stdin string, args ...string) string {
	b.t.Helper()
	c, out, errs := invalidator(b.t, stdin, append([]string{"invalidate", "--config", b.config}, args...)...)
	if c != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		b.t.Errorf("invalidate %.200s: exit %d, want %d with %q and %q\n%s%s", strings.Join(args, " "), c, code, stdout, stderr, out, errs)
	}
	return out
}

// sent are the keys on the topic, sorted, each with who sent it and why.
func (b *sentBench) sent() (keys []string) {
	b.t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Keys})
	if err != nil {
		b.t.Fatal(err)
	}
	err = changelog.ReadTopic(b.t.Context(), b.kafka, b.names.Keys, time.Time{}, false, func(r changelog.TopicRecord) error {
		row, _, err := d.Decode(envelope.Record{Topic: b.names.Keys, Key: r.Key, Value: r.Value})
		if err != nil {
			return err
		}
		var people struct{ By, Reason string }
		if err := json.Unmarshal(r.Value, &people); err != nil {
			return err
		}
		for _, k := range row.Keys {
			keys = append(keys, strings.TrimSpace(k+" "+people.By+" "+people.Reason))
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func (b *sentBench) wantSent(want ...string) {
	b.t.Helper()
	if keys := b.sent(); !slices.Equal(keys, want) {
		b.t.Errorf("sent %q, want %q", keys, want)
	}
}

// An operator deletes keys that are given on the command line, or a line each on standard input; empty lines are none, and a key is sent once.
func TestInvalidateCommand(t *testing.T) {
	b := newSentBench(t)
	b.invalidate(0, "2 keys in ", "", "", "user:1", "feed:7", "user:1", "--by", "ann@host", "--reason", "wrong prices")
	b.wantSent("feed:7 ann@host wrong prices", "user:1 ann@host wrong prices")
	b.invalidate(0, "1 key in 1 record on the log", "", "\nuser:2\r\n\n", "-", "--by", "bob")
	b.invalidate(0, "1 key", "", "dXNlcjr/\n", "--base64", "-", "--by", "eve")
	b.wantSent("feed:7 ann@host wrong prices", "user:1 ann@host wrong prices", "user:2 bob", "user:\xff eve")

	out := b.invalidate(0, "", "", "", "user:3", "--json")
	var got invalidateJSON
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Keys != 1 || got.Records != 1 || len(got.At) != 1 || got.At[0].Topic != b.names.Keys || got.At[0].To != got.At[0].From+1 || got.Unclaimed == nil {
		t.Errorf("%v: %s", err, out)
	}
	before := b.sent()
	b.invalidate(0, "would delete 1 key on every copy", "", "", "user:4", "--dry-run")
	b.invalidate(0, `"dry_run":true`, "", "", "user:4", "--dry-run", "--json")
	b.wantSent(before...)
	if len(before) != 5 || !strings.HasPrefix(before[3], "user:3 "+person()) {
		t.Errorf("sent %q", before)
	}
}

// What was sent is explained like any change.
func TestExplainKeys(t *testing.T) {
	b := newSentBench(t)
	b.invalidate(0, "1 key", "", "", "user:1")
	code, stdout, stderr := invalidator(t, "", "explain", "--config", b.config, "--mappings", "testdata/mappings", "--topic", b.names.Keys, "--since", "1h")
	if code != 0 || !strings.Contains(stdout, ": keys\n  delete user:1 ") || !strings.HasSuffix(stdout, " a key that was sent\n") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

// While something is wrong with any key none is written, and what is wrong is named by its line.
func TestInvalidateRefuses(t *testing.T) {
	b := newSentBench(t)
	var many strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&many, "user:%d\n", i)
	}
	for _, c := range []struct {
		stderr, stdin string
		args          []string
	}{
		{`line 3: key "user:a b": a space or a control character`, "user:1\n\nuser:a b\n", []string{"-"}},
		{"memcached cannot hold 1 key: nothing is deleted", "user:1\n\nuser:a b\n", []string{"-", "--force", "--yes"}},
		{"key user:" + strings.Repeat("k", 295) + "…: over 250 bytes", "", []string{"user:" + strings.Repeat("k", 1000)}},
		{`pool "usr" is none of the fleet's: did you mean "user"? (2 keys)`, "", []string{"usr:1", "usr:2", "user:1"}},
		{"--force deletes keys of pools that no mapping file in force claims", "", []string{"usr:1"}},
		{"1001 keys are more than 1000: say --yes", many.String(), []string{"-"}},
		{"there is no key on standard input", "\n\n", []string{"-"}},
		{"- stands alone", "", []string{"user:1", "-"}},
		{`line 2: key "a b" is not in base64`, "dXNlcjox\na b\n", []string{"-", "--base64"}},
		{"reading line 2 of standard input", "user:1\n" + strings.Repeat("k", maxKeyLine+1) + "\n", []string{"-"}},
		{"expected", "", nil},
		{"at most 1000 bytes", "", []string{"user:1", "--reason", strings.Repeat("r", 1001)}},
	} {
		b.invalidate(2, "", c.stderr, c.stdin, c.args...)
	}
	b.invalidate(1, "", "kafka.brokers", "", "user:1", "--config", file(t, t.TempDir(), "c.yaml", "mappings: {dir: .}\n"))
	b.wantSent()

	b.invalidate(0, "2 keys in ", `pool "usr" is none of the fleet's: did you mean "user"?`, "", "usr:1", "user:1", "--force", "--by", "x")
	b.wantSent("user:1 x", "usr:1 x")
	b.invalidate(0, "1001 keys in ", "", many.String(), "-", "--yes", "--by", "x")
	if n := len(b.sent()); n != 1003 {
		t.Errorf("%d keys", n)
	}
}

// On a terminal many keys are asked about, and only a yes goes on.
func TestInvalidateAsks(t *testing.T) {
	for _, c := range []struct {
		keys             int
		yes, terminal    bool
		answer           string
		asks, ok, misuse bool
	}{
		{keys: 1000, ok: true}, {keys: 1001, misuse: true}, {keys: 1001, yes: true, ok: true},
		{keys: 1001, terminal: true, answer: "y\n", asks: true, ok: true}, {keys: 1001, terminal: true, answer: " YES \n", asks: true, ok: true},
		{keys: 1001, terminal: true, answer: "n\n", asks: true}, {keys: 1001, terminal: true, asks: true}, {keys: 1001, terminal: true, answer: "\n", asks: true},
	} {
		var errs bytes.Buffer
		err := invalidateCmd{Yes: c.yes}.ask(&env{stdin: strings.NewReader(c.answer), stderr: &errs}, c.keys, c.terminal)
		if (err == nil) != c.ok || errors.As(err, new(misuse)) != c.misuse || strings.Contains(errs.String(), "1001 keys are deleted on every copy") != c.asks {
			t.Errorf("%+v: %v, %q", c, err, errs.String())
		}
	}
}

// A wait ends when the workers' commits have passed the keys; without a worker it ends with its timeout, and says that they are written.
func TestInvalidateWaits(t *testing.T) {
	b := newSentBench(t)
	b.invalidate(1, "", "1 key is written, and not all of them passed by the workers", "", "user:1", "--wait", "--timeout", "300ms")
	cl, err := b.kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	far := kadm.Offsets{}
	for p := range int32(changelog.KeysPartitions) {
		far.Add(kadm.Offset{Topic: b.names.Keys, Partition: p, At: 100, LeaderEpoch: -1})
	}
	if err := adm.CommitAllOffsets(t.Context(), "invalidator", far); err != nil {
		t.Fatal(err)
	}
	b.invalidate(0, "2 keys are deleted on every copy\n", "", "", "user:1", "user:2", "--wait")
	out := b.invalidate(0, "", "", "", "user:1", "--wait", "--json")
	var got invalidateJSON
	if err := json.Unmarshal([]byte(out), &got); err != nil || !got.Waited || len(got.Owed) != 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// What is still owed when a wait ends is told, with what ends it.
func TestInvalidateTellsWhatIsOwed(t *testing.T) {
	var out bytes.Buffer
	invalidateCmd{}.print(&out, invalidateJSON{Keys: 900, Records: 7, Waited: true, Owed: []app.Owing{
		{Owes: "node", Name: "10.0.1.5:11211", Records: 3, Open: true}, {Owes: "node", Name: "10.0.1.6:11211", Records: 2}, {Owes: "pool", Name: "user", Records: 1, Open: true}, {Owes: "storm", Name: "mail", Records: 5},
	}})
	want := `900 keys are passed by the workers; of 7 records this is still owed:
  node 10.0.1.5:11211: 3 records, it does not answer, and is paid when it does
  node 10.0.1.6:11211: 2 records, it is being paid
  pool user: 1 record, it is paused: invalidator resume pool user
  storm mail: 5 records, it is being paid
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
