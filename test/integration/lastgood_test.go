//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// TestStartWithABrokenFile: a whole fleet starts again after a team's file broke, and once more after the folder is gone. That
// team's keys go on being deleted: also those of a row over the size limit, of which the feeder must keep the column that the file
// names. A file that was never good is left out, and one that was taken out comes back only with the folder.
func TestStartWithABrokenFile(t *testing.T) {
	t.Parallel()
	db := harness.NewDatabase(t, harness.MariaDB)
	db.Do(t, "CREATE TABLE users (id BIGINT PRIMARY KEY, email VARCHAR(64), bio LONGTEXT)", "CREATE TABLE orders (id BIGINT PRIMARY KEY)")
	nodes := harness.StartNodes(t, 2)
	file := func(team, rest string) string {
		return fmt.Sprintf("version: 1\nteam: %s\npools: [%[1]s]\nmappings:\n  - name: m\n    table: %s.%s\n", team, db.Schema, rest)
	}
	p := harness.New(t, harness.Options{
		Databases: []*harness.Database{db}, Record: sink.Record{Shards: shards(nodes)}, Settle: 100 * time.Millisecond,
		Mappings: map[string]string{
			"users.yaml":  file("user", "users\n    keys: ['user:by-email:{email}']\n"),
			"orders.yaml": file("order", "orders\n    keys: ['order:{id}']\n"),
			"taken.yaml":  file("taken", "orders\n    keys: ['taken:{id}']\n"),
		},
	})
	dir := filepath.Join(p.Dir, "mappings.d")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id := 0
	// deletes commits a user, of so many bytes, and an order, and wants these keys of theirs deleted and the others not.
	deletes := func(bytes int, want string) {
		t.Helper()
		id++
		all := []string{fmt.Sprintf("user:by-email:%d@x.test", id), fmt.Sprintf("order:%d", id), fmt.Sprintf("taken:%d", id), fmt.Sprintf("never:%d", id)}
		for _, n := range nodes {
			if err := n.SetAll(all, "old"); err != nil {
				t.Fatal(err)
			}
		}
		db.Do(t, fmt.Sprintf("INSERT INTO users VALUES (%d, '%[1]d@x.test', REPEAT('x', %d))", id, bytes), fmt.Sprintf("INSERT INTO orders VALUES (%d)", id))
		p.AwaitFed(db)
		p.AwaitDelivered()
		for _, n := range nodes {
			left, err := n.Present(all)
			if err != nil {
				t.Fatal(err)
			}
			var gone []string
			for _, k := range all {
				if !strings.Contains(" "+strings.Join(left, " ")+" ", " "+k+" ") {
					gone = append(gone, k[:strings.Index(k, ":")])
				}
			}
			if got := strings.Join(gone, " "); got != want {
				t.Errorf("row %d: %s has lost %q, want %q", id, n.Addr, got, want)
			}
		}
	}
	var fleet []*harness.Process
	start := func() {
		fleet = []*harness.Process{p.Feed(), p.Work(), p.Work()}
		p.AwaitFeeding(db)
	}
	stop := func(logs ...string) {
		t.Helper()
		for _, f := range fleet {
			for _, want := range logs {
				harness.Await(t, "the log to say "+want, func() (bool, string) { return strings.Contains(f.Log(), want), f.Log() })
			}
			f.Terminate()
		}
	}

	start()
	deletes(1, "user order taken")
	awaitSaved(t, p, 3)
	stop("mappings in force")

	write("users.yaml", file("user", "users\n    keyz: ['user:by-email:{email}']\n"))
	write("never.yaml", file("never", "orders\n    keyz: ['never:{id}']\n"))
	if err := os.Remove(filepath.Join(dir, "taken.yaml")); err != nil {
		t.Fatal(err)
	}
	start()
	deletes(1, "user order")
	deletes(1500<<10, "user order")
	awaitSaved(t, p, 2)
	stop("a mapping file is in force as the state topic has it", "users.yaml:7:5: field \\\"keyz\\\" is unknown", "a mapping file is left out")

	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	start()
	deletes(1500<<10, "user order")
	stop("the mappings folder fails")
}

// awaitSaved waits until so many mapping files stand on the state topic and are not gone.
func awaitSaved(t *testing.T, p *harness.Pipeline, n int) {
	t.Helper()
	state, err := changelog.OpenState(changelog.Options{Brokers: []string{services.Addr("KAFKA")}}, changelog.NamesFor(p.Config.Kafka.TopicPrefix).State)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	harness.Await(t, fmt.Sprintf("%d mapping files on the state topic", n), func() (bool, string) {
		st, err := state.Load(t.Context())
		if err != nil {
			return false, err.Error()
		}
		have := 0
		for _, s := range st.LoadMappings(p.Config.Kafka.Group) {
			if s.Err == nil && s.Gone.IsZero() {
				have++
			}
		}
		return have == n, fmt.Sprint(have)
	})
}
