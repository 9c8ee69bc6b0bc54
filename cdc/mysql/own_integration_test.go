//go:build integration

package mysql

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"invalidator/test/integration/services"
)

// own is a server of one test alone, from the binaries that ./dev uses: for other settings, and for what would harm others.
type own struct {
	service string
	addr    string
	dir     string
	args    []string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// lowerNames is a setting that MySQL fixes when a data folder is made.
const lowerNames = "--lower-case-table-names=1"

// folders are data folders, one a kind of server, which each server takes a copy of.
var folders = map[string]func() (string, error){
	"MYSQL":                 sync.OnceValues(func() (string, error) { return newFolder("MYSQL") }),
	"MYSQL " + lowerNames:   sync.OnceValues(func() (string, error) { return newFolder("MYSQL", lowerNames) }),
	"MARIADB":               sync.OnceValues(func() (string, error) { return newFolder("MARIADB") }),
	"MARIADB " + lowerNames: sync.OnceValues(func() (string, error) { return newFolder("MARIADB") }),
}

var madeFolders []string

func newFolder(service string, args ...string) (string, error) {
	dir, err := os.MkdirTemp("", "cdc-mysql-")
	if err != nil {
		return "", err
	}
	madeFolders = append(madeFolders, dir)
	if service == "MARIADB" {
		return dir, output(exec.Command("mariadb-install-db", "--no-defaults", "--user=root", "--datadir="+dir,
			"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=4M"))
	}
	return dir, output(exec.Command(mysqld(service), append(append(commonArgs(service, dir), "--initialize-insecure"), args...)...))
}

func removeFolders() {
	for _, dir := range madeFolders {
		os.RemoveAll(dir)
	}
}

func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

func mysqld(service string) string {
	if service == "MARIADB" {
		return "mariadbd"
	}
	return filepath.Join(services.Root(), ".dev/lib/mysql/bin/mysqld")
}

func commonArgs(service, dir string) []string {
	args := []string{"--no-defaults", "--user=root", "--datadir=" + dir, "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M"}
	if service == "MYSQL" {
		lib := filepath.Join(services.Root(), ".dev/lib/mysql")
		args = append(args, "--basedir="+lib, "--lc-messages-dir="+lib+"/share")
	}
	return args
}

// shared are servers under another binlog_row_metadata than FULL, one a kind, that tests share. endServers ends them.
var shared = map[string]*own{}

func sharedServer(t *testing.T, service, metadata string) *own {
	t.Helper()
	kind := service + " " + metadata
	if shared[kind] == nil {
		dir, err := os.MkdirTemp("", "cdc-mysql-")
		if err != nil {
			t.Fatal(err)
		}
		madeFolders = append(madeFolders, dir)
		shared[kind] = startOwn(t, service, dir, 9, "--binlog-row-metadata="+metadata)
	}
	return shared[kind]
}

func endServers() {
	for _, o := range shared {
		if o.cmd.Process.Kill() == nil {
			<-o.ended
		}
	}
}

// newOwn starts a server with FULL row events and the given arguments, and ends it with the test.
func newOwn(t *testing.T, service string, id int, args ...string) *own {
	t.Helper()
	o := startOwn(t, service, t.TempDir(), id, args...)
	t.Cleanup(func() { o.kill(t) })
	return o
}

func startOwn(t *testing.T, service, dir string, id int, args ...string) *own {
	t.Helper()
	kind := service
	if slices.Contains(args, lowerNames) {
		kind += " " + lowerNames
	}
	template, err := folders[kind]()
	if err != nil {
		t.Fatalf("making a data folder: %v", err)
	}
	o := &own{service: service, dir: dir}
	if err := output(exec.Command("cp", "-a", template+"/.", o.dir)); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(o.dir, "auto.cnf"))
	accounts, err := os.ReadFile(filepath.Join(services.Root(), "deploy/local/sql/mysql.sql"))
	if err != nil {
		t.Fatal(err)
	}
	init := filepath.Join(o.dir, "init.sql")
	if err := os.WriteFile(init, append([]byte("SET SESSION sql_log_bin = 0;\n"), accounts...), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(o.addr)
	l.Close()
	o.args = append(commonArgs(service, o.dir), "--bind-address=127.0.0.1", "--port="+port, "--socket="+o.dir+"/s", "--pid-file="+o.dir+"/pid",
		"--init-file="+init, "--performance-schema=OFF", "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL",
		fmt.Sprintf("--server-id=%d", id), "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0")
	if service == "MYSQL" {
		o.args = append(o.args, "--mysqlx=OFF", "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	}
	o.args = append(o.args, args...)
	o.start(t)
	return o
}

// start starts the server and waits until it answers.
func (o *own) start(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	o.cmd, o.ended = exec.Command(mysqld(o.service), o.args...), make(chan struct{})
	o.cmd.Stdout, o.cmd.Stderr = &log, &log
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := o.cmd, o.ended
	go func() {
		cmd.Wait()
		close(ended)
	}()
	deadline := time.After(4 * patienceOfTests)
	for again := time.NewTicker(50 * time.Millisecond); ; {
		if c, err := client.Connect(o.addr, "cdc", "cdc-password", ""); err == nil {
			again.Stop()
			c.Close()
			return
		}
		select {
		case <-again.C:
		case <-o.ended:
			t.Fatalf("%s ended: %s", o.service, log.String())
		case <-deadline:
			t.Fatalf("%s does not answer: %s", o.service, log.String())
		}
	}
}

// kill ends the server at once, as a crash does.
func (o *own) kill(t *testing.T) {
	t.Helper()
	if err := o.cmd.Process.Signal(syscall.SIGKILL); err != nil && err != os.ErrProcessDone {
		t.Errorf("killing a server: %v", err)
	}
	<-o.ended
}

// bed is a database on the server.
func (o *own) bed(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, service: o.service, addr: o.addr, db: fmt.Sprintf("feed_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9)}
	b.admin = b.connect("root", "", "")
	b.exec(b.admin, "CREATE DATABASE IF NOT EXISTS "+b.db)
	b.sql = b.connect("app", "app-password", b.db)
	return b
}

// on is the same database, on another server.
func (b *bed) on(o *own) *bed {
	b.Helper()
	c := &bed{T: b.T, service: o.service, addr: o.addr, db: b.db}
	c.admin = c.connect("root", "", "")
	c.sql = c.connect("app", "app-password", "")
	return c
}

// follow makes the server a replica of another, by GTID.
func (b *bed) follow(other *own) {
	b.Helper()
	host, port, _ := strings.Cut(other.addr, ":")
	auto := "MASTER_AUTO_POSITION=1, MASTER_CONNECT_RETRY=1"
	if b.service == "MARIADB" {
		auto = "MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1"
	}
	b.exec(b.admin, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', %s", host, port, auto), "START SLAVE")
}

// awaits asks until the query gives the text.
func (b *bed) awaits(query, want string) {
	b.Helper()
	deadline := time.After(patienceOfTests)
	for again := time.NewTicker(20 * time.Millisecond); ; {
		got := ""
		if r, err := b.admin.Execute(query); err == nil && r.RowNumber() > 0 {
			got, _ = r.GetString(0, 0)
		}
		if got == want {
			again.Stop()
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			b.Fatalf("%s: %s gives %q, not %q", b.service, query, got, want)
		}
	}
}
