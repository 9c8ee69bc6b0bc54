package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
	"invalidator/replay"
)

// gapBench is a fake Kafka with gaps, and the configuration that finds it.
type gapBench struct {
	t      *testing.T
	book   *gap.Book
	kafka  changelog.Options
	names  changelog.Names
	config string
}

func newGapBench(t *testing.T) *gapBench {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b := &gapBench{t: t, kafka: changelog.Options{Brokers: cluster.ListenAddrs()}, names: changelog.NamesFor("")}
	cl, err := b.kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := changelog.EnsureTopics(t.Context(), kadm.NewClient(cl), changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	if b.book, err = gap.OpenBook(b.kafka, b.names, "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.book.Close)
	b.config = file(t, t.TempDir(), "invalidator.yaml", fmt.Sprintf("kafka: {brokers: [%q]}\nmappings: {dir: .}\n", cluster.ListenAddrs()[0]))
	return b
}

func (b *gapBench) record(g gap.Gap) *gap.Case {
	b.t.Helper()
	c, err := b.book.Record(b.t.Context(), g, false)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// tell writes to the status topic.
func (b *gapBench) tell(r replay.Record) {
	b.t.Helper()
	out, err := changelog.OpenWriter(b.kafka)
	if err != nil {
		b.t.Fatal(err)
	}
	defer out.Close()
	value, err := replay.Encode(r)
	if err == nil {
		err = out.Write(b.t.Context(), b.names.Status, "result", value)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// requests are the pools of which a flush was asked for.
func (b *gapBench) requests() (pools []string) {
	b.t.Helper()
	cl, err := b.kafka.Client(kgo.ConsumeTopics(b.names.Control))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(b.t.Context(), b.names.Control)
	if err != nil {
		b.t.Fatal(err)
	}
	end, _ := ends.Lookup(b.names.Control, 0)
	for int64(len(pools)) < end.Offset {
		for _, r := range cl.PollFetches(b.t.Context()).Records() {
			rec, err := replay.DecodeControl(r.Value)
			if err != nil {
				b.t.Fatal(err)
			}
			pools = append(pools, rec.(replay.Request).Target.Pool)
		}
	}
	return pools
}

func (b *gapBench) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	args = append([]string{"gap", args[0], "--config", b.config}, args[1:]...)
	return invalidator(b.t, "", args...)
}

func (b *gapBench) want(code int, stdout, stderr string, args ...string) string {
	b.t.Helper()
	c, out, errs := b.run(args...)
	if c != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		b.t.Errorf("gap %s: exit %d, want %d with %q and %q\n%s%s", strings.Join(args, " "), c, code, stdout, stderr, out, errs)
	}
	return out
}

func TestGapCommands(t *testing.T) {
	b := newGapBench(t)
	if out := b.want(0, "", "", "list"); out != "" {
		t.Errorf("no gap, and it lists %s", out)
	}
	b.want(1, "", "there is none at all", "show", "shop/00000000")

	from := cdc.Position{LSN: "0/16B3748", SystemID: "7", Timeline: 1}
	stands := b.record(gap.Gap{
		ID: gap.FeederID("shop", from), Source: "shop", Stops: true, From: from, Why: "the slot is lost", Hint: "raise max_slot_wal_keep_size",
		Pools: []string{"user", "mail"},
	})
	worker := b.record(gap.Gap{
		ID: gap.WorkerID("shop.shop.users", 3, 500), Source: "shop", Why: "the group was away", Pools: []string{"item"},
		Range: &replay.Range{Topic: "shop.shop.users", Partition: 3, From: 100, To: 500},
	})
	b.want(0, "open, the source stands", "", "list")
	b.want(0, stands.ID, "", "list")
	b.want(0, "from offset 100 to before 500", "", "show", worker.ID)
	b.want(0, "raise max_slot_wal_keep_size", "", "show", stands.ID)
	b.want(1, "", "there are: "+stands.ID+", "+worker.ID, "accept", "shop/00000000")
	b.want(2, "", "expected", "accept")

	// A dry run changes nothing.
	b.want(0, "would accept "+stands.ID+": a flush is asked for of mail, user, and source shop goes on", "", "accept", "--dry-run", stands.ID)
	b.want(0, "open, the source stands", "", "list")

	// A worker's is closed at once; twice is harmless.
	for range 2 {
		b.want(0, worker.ID+" is closed: a flush is asked for of item", "", "accept", worker.ID)
	}
	if got := b.requests(); len(got) != 1 || got[0] != "item" {
		t.Errorf("asked for %s", got)
	}

	// It is closed, and its flush is not done until that has a result: a request is no flush.
	b.want(0, "closed, flush waiting", "", "list")
	b.want(0, "waiting (invalidator flush list)", "", "show", worker.ID)
	b.want(0, `"flush":"waiting"`, "", "list", "--json")
	b.tell(replay.Result{ID: worker.ID + "/item", At: time.Now(), Clean: true, Keys: 3})
	b.want(0, "closed, flush done", "", "list")

	// What stops a source is the feeder's to pass. The first decision stays.
	b.want(0, "accepted by ann: nothing is flushed, and source shop goes on", "", "accept", "--by", "ann", "--no-flush", stands.ID)
	out := b.want(0, "", "", "accept", "--by", "bob", "--json", stands.ID)
	var got struct {
		State    string
		ID       string
		Accepted struct {
			By    string
			Flush bool
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.State != "accepted" || got.ID != stands.ID || got.Accepted.By != "ann" || got.Accepted.Flush {
		t.Errorf("%v %s", err, out)
	}
	if n := len(b.requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	if n := strings.Count(b.want(0, `"state":"closed"`, "", "list", "--json"), "\n"); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// It needs Kafka, and Kafka alone.
func TestGapCommandsWithoutKafka(t *testing.T) {
	config := file(t, t.TempDir(), "invalidator.yaml", "kafka: {brokers: ['127.0.0.1:1']}\n")
	for _, args := range [][]string{{"list"}, {"show", "x/1"}, {"accept", "x/1"}} {
		code, out, errs := invalidator(t, "", append([]string{"gap", args[0], "-c", config}, args[1:]...)...)
		if code != 1 || out != "" || !strings.Contains(errs, "kafka.brokers") {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, errs)
		}
	}
	code, _, errs := invalidator(t, "", "gap", "list", "-c", filepath.Join(t.TempDir(), "none.yaml"))
	if code != 1 || !strings.Contains(errs, "none.yaml") {
		t.Errorf("exit %d\n%s", code, errs)
	}
}
