package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/app"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/replay"
)

// What is owed, by whom, how fast it is paid, how far logs are, which nodes are off and which passes run: for people and as JSON, and the exit code.
func TestStatusTellsWhatIsOwed(t *testing.T) {
	path, speak := fleetTopic(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := changelog.Options{Brokers: cfg.Kafka.Brokers}.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm, ctx := kadm.NewClient(cl), context.Background()
	if _, err := changelog.EnsureTopics(ctx, adm, []changelog.TopicSpec{changelog.Settings{Partitions: 2}.Change("shop.users"), changelog.Settings{Partitions: 1}.Change("shop.done")}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "shop.users", Key: []byte("k"), Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ends, err := adm.ListEndOffsets(ctx, "shop.users")
	if err != nil {
		t.Fatal(err)
	}
	full := int32(0)
	if e, _ := ends.Lookup("shop.users", 1); e.Offset > 0 {
		full = 1
	}
	commits := kadm.Offsets{}
	for _, c := range []changelog.Partition{{Topic: "shop.users", Number: full}, {Topic: "shop.users", Number: 1 - full}, {Topic: "shop.done", Number: 0}} {
		at := int64(0)
		if c.Number == full && c.Topic == "shop.users" {
			at = 4
		}
		commits.Add(kadm.Offset{Topic: c.Topic, Partition: c.Number, At: at, LeaderEpoch: -1})
	}
	if err := adm.CommitAllOffsets(ctx, "fleet", commits); err != nil {
		t.Fatal(err)
	}
	state, err := changelog.OpenState(changelog.Options{Brokers: cfg.Kafka.Brokers}, changelog.NamesFor("").State)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	now := time.Now().UTC().Truncate(time.Second)
	since := now.Add(-90 * time.Second).Format(time.RFC3339)
	put := func(debts string) {
		t.Helper()
		if err := state.Put(ctx, fmt.Sprintf("partition/fleet/shop.users/%d/3/x", full), []byte(fmt.Sprintf(`{"v":2,"offset":4,"debts":[%s],"journal":[]}`, debts))); err != nil {
			t.Fatal(err)
		}
	}
	debt := func(kind, name, to, since string) string {
		return fmt.Sprintf(`{"kind":%q,"name":%q,"from":1,"to":%s,"since":%q,"epoch":1,"hot_revision":1}`, kind, name, to, since)
	}
	put(strings.Join([]string{debt("node", "a:1", "null", since), debt("node", "b:1", "4", since), debt("storm", "feed", "3", since)}, ","))
	said, err := replay.Encode(replay.Owed{Node: "b:1", Group: "fleet", At: now.Add(time.Minute), Partitions: 1, Records: 3, Rate: 1.5, Seconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	other, err := replay.Encode(replay.Owed{Node: "b:1", Group: "other", At: now.Add(time.Minute), Partitions: 1, Records: 3, Rate: 3, Seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range [][]byte{said, other, []byte("of another version")} {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: changelog.NamesFor("").Status, Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	ahead := now.Add(time.Minute) // nobody is lost, however slow this is
	speak("w-1-AAAAAAAA", lastWord(ahead, "worker", "9f2c4e1b00aa1122", 12*time.Minute, fmt.Sprintf(`,"ring":{"epoch":7,"hot_revision":51},`+
		`"off":[{"node":"a:1","since":%q,"why":"connection refused"}],"paying":[{"topic":"shop.users","partition":0,"pays":"debts","whose":"node b:1","from":1,"to":4}]`,
		ahead.Add(-91*time.Second).Format(time.RFC3339))))

	code, stdout, stderr := invalidator(t, "", "status", "-c", path)
	want := fmt.Sprintf(`PROCESS       ROLE    STATE  UP  RING  MAPPINGS          IN FORCE  VERSION
w-1-AAAAAAAA  worker  up     1h  7     9f2c4e1b00aa1122  12m       v1.4.0

OWES DELETES  PARTITIONS  RECORDS  SINCE  STATE          PAID IN
node a:1               1        9     1m  off            -
node b:1               1        3     1m  is being paid  about 2s
storm feed             1        2     1m  is being paid  ?

TOPIC BEHIND  PARTITIONS  RECORDS  OLDEST  AT MOST  IN PARTITION  SOURCE
shop.users             2        6    <10s        6  %d             -

NODE OFF  FOR WORKER    SINCE  WHY
a:1       w-1-AAAAAAAA     1m  connection refused

PASS PAYS  BY WORKER     PARTITION     FROM  TO
node b:1   w-1-AAAAAAAA  shop.users/0     1   4

warning: node a:1: it is off: it does not answer in time. It is paid by itself when it is back

nothing needs a person (1 warning)
`, full)
	if d := cmp.Diff(want, stdout); code != exitOK || stderr != "" || d != "" {
		t.Errorf("exit code %d, %s, %s", code, stderr, d)
	}

	code, stdout, _ = invalidator(t, "", "status", "-c", path, "--json")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != exitOK || len(lines) != 8 {
		t.Fatalf("exit code %d, %s", code, stdout)
	}
	for i, want := range []string{
		fmt.Sprintf(`{"owes":"node","name":"a:1","partitions":1,"records":9,"since":%q,"open":true,"rate":0}`, since),
		fmt.Sprintf(`{"owes":"node","name":"b:1","partitions":1,"records":3,"since":%q,"open":false,"rate":1.5,"left":2}`, since),
		fmt.Sprintf(`{"owes":"storm","name":"feed","partitions":1,"records":2,"since":%q,"open":false,"rate":0}`, since),
		`{"topic":"shop.done","partition":0,"committed":0,"end":0,"lag":0}`,
	} {
		if lines[1+i] != want {
			t.Errorf("line %d is %s, want %s", 1+i, lines[1+i], want)
		}
	}
	var process struct {
		Off, Paying []map[string]any
	}
	if err := json.Unmarshal([]byte(lines[0]), &process); err != nil || len(process.Off) != 1 || process.Off[0]["node"] != "a:1" || len(process.Paying) != 1 || process.Paying[0]["to"] != 4.0 {
		t.Errorf("the process is %s, %v", lines[0], err)
	}

	// What needs a person: a debt that the log will not hold for long, a template that stopped, a state of a newer version.
	put(debt("node", "a:1", "null", now.Add(-25*time.Hour).Format(time.RFC3339)) + "," + debt("template", "user", "null", since))
	if err := state.Put(ctx, "partition/fleet/shop.done/0/1/y", []byte(`{"v":9}`)); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ = invalidator(t, "", "status", "-c", path)
	for _, want := range []string{"error: node a:1: it has owed deletes for over 24h0m0s", "error: template user: its template cannot render", "error: fleet fleet: what is owed is not known: the state partition/fleet/shop.done/0/1/y"} {
		if code != exitFailed || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %s, want %s", code, stdout, want)
		}
	}
}

// All is well, and a long list is cut.
func TestStatusIsShort(t *testing.T) {
	f := app.Fleet{Lags: []app.PartitionLag{{Topic: "t", Partition: 0, End: 5}, {Topic: "t", Partition: 1, End: -1}}}
	var b bytes.Buffer
	if err := fleetForPeople(&b, f, time.Now()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("nothing is owed\n\nno log is behind: 2 partitions of 1 topic\n\nall is well\n", b.String()); d != "" {
		t.Error(d)
	}
	for i := range 25 {
		f.Owing = append(f.Owing, app.Owing{Owes: "node", Name: fmt.Sprint(i)})
	}
	b.Reset()
	if err := fleetForPeople(&b, f, time.Now()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\nnode 19 ") || strings.Contains(b.String(), "node 20") || !strings.Contains(b.String(), "\nand 5 more (--json has all)\n") {
		t.Errorf("a long list: %s", b.String())
	}
}
