//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// TestBadInput: what is wrong gives one clear line that says what, where and what to do, and everybody else goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	id := harness.Unique()
	noLog, noLogical := mariadbWithoutLog(t), postgresWithoutLogical(t)
	source := func(name, rest string) string {
		return fmt.Sprintf("  - {name: %s-%s, user: cdc, include: [\"*.*\"], %s}\n", id, name, rest)
	}
	good := newShop(t, harness.Postgres)
	nodes := harness.StartNodes(t, 2)
	record := sink.Record{Shards: shards(nodes)}
	p := harness.New(t, harness.Options{
		ID: id, Databases: []*harness.Database{good.Database}, Record: record, Settle: 100 * time.Millisecond,
		Mappings: map[string]string{
			"good.yaml":  good.mappings(),
			"typo.yaml":  "version: 1\nteam: x\npools: [x]\nmappings:\n  - name: x\n    tabel: shop.x\n    keys: [\"x:{id}\"]\n",
			"taken.yaml": "version: 1\nteam: others\npools: [postgres-user]\n",
		},
		Sources: source("login", fmt.Sprintf("type: mysql, hosts: [%q], password: wrong", services.Addr("MYSQL"))) +
			source("pglogin", fmt.Sprintf("type: postgres, hosts: [%q], database: shop, password: wrong", services.Addr("POSTGRES"))) +
			source("nodb", fmt.Sprintf("type: postgres, hosts: [%q], database: nosuch, password: cdc-password", services.Addr("POSTGRES"))) +
			source("away", `type: mysql, hosts: ["127.0.0.1:1"], password: x`) +
			source("nolog", fmt.Sprintf("type: mysql, hosts: [%q], password: x", noLog)) +
			source("level", fmt.Sprintf("type: postgres, hosts: [%q], database: postgres, password: x", noLogical)),
	})
	if err := os.Symlink("nowhere", filepath.Join(p.Dir, "mappings.d", "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	feeder, worker := p.Feed(), p.Work()
	p.AwaitFeeding(good.Database)

	lines := func(of *harness.Process, test map[string]string) {
		for what, want := range test {
			t.Run(what, func(t *testing.T) { oneLine(t, of, want) })
		}
	}
	lines(feeder, map[string]string{
		"wrong MySQL password":    `source ` + id + `-login: .*Access denied for user 'cdc'.*\(check user and password of this source`,
		"wrong Postgres password": `source ` + id + `-pglogin: .*password authentication failed for user .*cdc.*\(check user and password of the source\)`,
		"missing database":        `source ` + id + `-nodb: .*database .*nosuch.* does not exist.*\(check the source's database\)`,
		"a server that is away":   `source ` + id + `-away: .*127\.0\.0\.1:1.*connection refused.*\(is the server up and reachable\?\)`,
		"no row logging":          `source ` + id + `-nolog: .*writes no binary log.*\(start it with log_bin and binlog_format=ROW\)`,
		"wal_level=replica":       `source ` + id + `-level: .*wal_level is replica.*\(.*wal_level.*logical.*restart`,
	})
	lines(worker, map[string]string{
		"a mapping file with an unknown field": `typo\.yaml:6:5: field .*tabel.* is unknown in a mapping \(did you mean .*table`,
		"a mapping file that cannot be read":   `gone\.yaml: reading the file: .*no such file`,
		"a pool that another file has":         `taken\.yaml:3:9: pool .*postgres-user.* is claimed by .*good\.yaml`,
	})
	t.Run("the good source and the good file work", func(t *testing.T) { stillDeletes(t, p, good, record, nodes, 1) })
	t.Run("a ring in etcd with a doubled shard", func(t *testing.T) {
		bad := record
		bad.Shards = append(shards(nodes), shards(nodes)...)
		p.Publish(bad)
		oneLine(t, worker, `/ring.*shard .*s00.*: shards\[1\]\.id: the id is taken by the shard at index 0 \(give every shard an id of its own\)`)
		stillDeletes(t, p, good, record, nodes, 2)
	})
	feeder.Terminate()
	worker.Terminate()
}

// oneLine waits for a line of the log that matches, and wants no second one.
func oneLine(t *testing.T, of *harness.Process, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	match := func() (n int) {
		for line := range strings.Lines(of.Log()) {
			if re.MatchString(line) {
				n++
			}
		}
		return n
	}
	harness.Await(t, "a line of the log like "+pattern, func() (bool, string) { return match() > 0, of.Log() })
	if n := match(); n != 1 {
		t.Errorf("%d lines say %s, want one", n, pattern)
	}
}

// stillDeletes commits a row, and waits for the deletes of its key.
func stillDeletes(t *testing.T, p *harness.Pipeline, s *shop, record sink.Record, nodes []*harness.Node, id int) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Set(s.userKey(id), none); err != nil {
			t.Fatal(err)
		}
	}
	s.Do(t, fmt.Sprintf(`INSERT INTO users (id, email, name, ver) VALUES (%d, 'a@x.test', 'n', 1)`, id))
	for _, n := range nodes {
		harness.Await(t, s.userKey(id)+" to be deleted on "+n.Addr, func() (bool, string) {
			hit, err := n.Get(s.userKey(id))
			return err == nil && !hit.Found, fmt.Sprint(hit, err)
		})
	}
}

// TestBadConfig: a command that cannot work says so in one line and ends, or waits for what may come.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "mappings.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	s := shards([]*harness.Node{{Addr: "127.0.0.1:2"}, {Addr: "127.0.0.1:3"}})
	ring, err := json.MarshalIndent(sink.Record{Epoch: 1, Kind: sink.KindPoints160, Shards: append(s, s...)}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	write("ring.json", string(ring))
	config := func(kafka string) string {
		return fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {ring: {file: ring.json}}\nsources:\n  - {name: s, type: mysql, hosts: [%q], user: cdc, password: cdc-password, include: [nosuch.*]}\n", kafka, services.Addr("MYSQL"))
	}
	for _, test := range []struct {
		name, command, config, line string
	}{
		{"unknown field", "run", strings.Replace(config("127.0.0.1:1"), "cache: {", "cache: {setle: 1s, ", 1), `c\.yaml:2: unknown field "setle" \(see invalidator\.example\.yaml\)`},
		{"no such source type", "feed", strings.Replace(config("127.0.0.1:1"), "type: mysql", "type: oracle", 1), `c\.yaml:4: source s: type "oracle" is not known`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := harness.Start(t, test.command, test.command, "--config", write("c.yaml", test.config))
			if code := p.Wait(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			oneLine(t, p, test.line)
		})
	}
	t.Run("a ring file with a doubled shard", func(t *testing.T) {
		p := harness.Start(t, "run", "run", "--config", write("c.yaml", config("127.0.0.1:1")))
		oneLine(t, p, `ring\.json:\d+: shard .{1,2}s00.{1,2}: shards\[1\]\.id: the id is taken by the shard at index 0 \(give every shard an id of its own\)`)
		p.Terminate() // a broker may have what was last good: it is waited for
	})
	t.Run("a broker that is not there", func(t *testing.T) {
		p := harness.Start(t, "feed", "feed", "--config", write("c.yaml", config("127.0.0.1:1")))
		harness.Await(t, "a line about the broker", func() (bool, string) {
			return regexp.MustCompile(`kafka at 127\.0\.0\.1:1: .*connection refused.*\(is the broker running\? check kafka\.brokers\)`).MatchString(p.Log()), p.Log()
		})
		p.Terminate() // it waits for the broker, and ends when it is told to
	})
}

// server runs a database server of the test's own until the test ends.
func server(t *testing.T, addr string, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", cmd.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
		log.Close()
	})
	harness.Await(t, cmd.Path+" at "+addr, func() (bool, string) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			said, _ := os.ReadFile(log.Name())
			return false, err.Error() + "\n" + string(said)
		}
		c.Close()
		return true, ""
	})
}

// mariadbWithoutLog is a MariaDB without a binary log, that lets everybody in.
func mariadbWithoutLog(t *testing.T) (addr string) {
	t.Helper()
	addr = harness.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "mariadb") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	server(t, addr, exec.Command("mariadbd", "--no-defaults", "--user=root", "--datadir="+dir, "--socket="+dir+"/s", "--pid-file="+dir+"/pid",
		"--bind-address=127.0.0.1", "--port="+port, "--skip-grant-tables", "--innodb-buffer-pool-size=8M", "--innodb-log-file-size=4M"))
	return addr
}

// postgresWithoutLogical is a Postgres with wal_level=replica, that lets everybody in.
func postgresWithoutLogical(t *testing.T) (addr string) {
	t.Helper()
	bin, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(bin) == 0 {
		t.Fatalf("no Postgres under /usr/lib/postgresql: %v (./dev up installs it)", err)
	}
	addr = harness.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := func(args ...string) *exec.Cmd { return exec.Command(args[0], args[1:]...) }
	if os.Geteuid() == 0 { // which Postgres refuses to run as
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		as = func(args ...string) *exec.Cmd {
			return exec.Command("setpriv", append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--"}, args...)...)
		}
	}
	data := filepath.Join(dir, "data")
	init := as(bin[0]+"/initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8")
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server(t, addr, as(bin[0]+"/postgres", "-D", data, "-p", port, "-h", "127.0.0.1", "-k", dir, "-c", "wal_level=replica", "-c", "fsync=off"))
	role := exec.Command(bin[0]+"/psql", "-h", "127.0.0.1", "-p", port, "-U", "postgres", "-c", "CREATE ROLE cdc LOGIN REPLICATION SUPERUSER")
	harness.Await(t, "Postgres to take a role", func() (bool, string) {
		c := exec.Command(role.Path, role.Args[1:]...)
		out, err := c.CombinedOutput()
		return err == nil, string(out)
	})
	return addr
}
