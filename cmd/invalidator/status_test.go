package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
)

// fleetTopic is a configuration whose broker has a state topic, and how to write a process's last word there.
func fleetTopic(t *testing.T) (config string, speak func(id, record string)) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	o := changelog.Options{Brokers: cluster.ListenAddrs()}
	cl, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := changelog.EnsureTopics(t.Context(), kadm.NewClient(cl), changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	state, err := changelog.OpenState(o, changelog.NamesFor("").State)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(state.Close)
	config = file(t, t.TempDir(), "invalidator.yaml", fmt.Sprintf("kafka: {brokers: [%q], group: fleet}\n", cluster.ListenAddrs()[0]))
	return config, func(id, record string) {
		t.Helper()
		if err := state.Put(t.Context(), "process/"+id, []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
}

// lastWord is a process that speaks now, started 90 minutes ago, and has had its mappings in force for so long.
func lastWord(now time.Time, role, fingerprint string, inForce time.Duration, more string) string {
	text := func(back time.Duration) string { return now.Add(-back).Format(time.RFC3339) }
	return fmt.Sprintf(`{"v":1,"role":%q,"host":"h","group":"fleet","version":"v1.4.0","started":%q,"at":%q,"mappings":{"fingerprint":%q,"since":%q}%s}`,
		role, text(90*time.Minute), text(0), fingerprint, text(inForce), more)
}

// The fingerprint of each process is seen by one command; two of them are plain, and fail it.
func TestStatus(t *testing.T) {
	config, speak := fleetTopic(t)
	now := time.Now().UTC().Truncate(time.Second).Add(time.Minute) // nobody is lost, however slow this is
	speak("w-1-AAAAAAAA", lastWord(now, "worker", "9f2c4e1b00aa1122", 12*time.Minute, `,"ring":{"epoch":7,"hot_revision":51}`))
	speak("f-1-BBBBBBBB", lastWord(now, "feeder", "9f2c4e1b00aa1122", 50*time.Second, ""))
	code, stdout, stderr := invalidator(t, "", "status", "-c", config)
	want := `PROCESS       ROLE    STATE  UP  RING  MAPPINGS          IN FORCE  VERSION
w-1-AAAAAAAA  worker  up     1h  7     9f2c4e1b00aa1122  12m       v1.4.0
f-1-BBBBBBBB  feeder  up     1h  -     9f2c4e1b00aa1122  50s       v1.4.0

nothing is owed

all is well
`
	if d := cmp.Diff(want, stdout); code != exitOK || stderr != "" || d != "" {
		t.Errorf("exit code %d, %s, %s", code, stderr, d)
	}

	speak("w-2-CCCCCCCC", lastWord(now, "worker", "0011223344556677", 2*time.Hour, ""))
	code, stdout, stderr = invalidator(t, "", "status", "-c", config)
	want = "error: fleet fleet: runs 2 sets of mappings: 0011223344556677 (worker w-2-CCCCCCCC), 9f2c4e1b00aa1122 (worker w-1-AAAAAAAA, feeder f-1-BBBBBBBB), for more than a minute"
	if code != exitFailed || stderr != "" || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, %s, %s, want %s", code, stderr, stdout, want)
	}

	code, stdout, stderr = invalidator(t, "", "status", "-c", config, "--json")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != exitFailed || stderr != "" || len(lines) != 4 || !strings.HasPrefix(lines[3], `{"severity":"error","where":"fleet fleet","what":"runs 2 sets`) {
		t.Fatalf("exit code %d, %s, %s", code, stderr, stdout)
	}
	var got, form any
	at := now.Format(time.RFC3339)
	first := fmt.Sprintf(`{"process":"w-1-AAAAAAAA","role":"worker","host":"h","version":"v1.4.0","started":%q,"at":%q,"lost":false,`+
		`"mappings":{"fingerprint":"9f2c4e1b00aa1122","since":%q,"failing":[],"recalled":[]},"ring":{"epoch":7,"hot_revision":51}}`,
		now.Add(-90*time.Minute).Format(time.RFC3339), at, now.Add(-12*time.Minute).Format(time.RFC3339))
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(first), &form); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(form, got); d != "" {
		t.Error(d)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59*time.Second + 900*time.Millisecond: "59s", time.Minute: "1m", time.Hour - 1: "59m", 47*time.Hour + time.Minute: "47h", 48 * time.Hour: "2d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
