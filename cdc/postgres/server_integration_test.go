//go:build integration

package postgres

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a Postgres of a test's own, for settings that others must not see, and for pairs.
type server struct {
	t    *testing.T
	home string // its binaries' folder
	dir  string
	addr string
	cmd  *exec.Cmd
}

// homeOf finds the binaries that ./dev runs or fetches.
func homeOf(t *testing.T, version int) string {
	t.Helper()
	home := "/usr/lib/postgresql/15/bin"
	if version != 15 {
		home, _ = filepath.Abs(fmt.Sprintf("../../.dev/lib/pg%d/bin", version))
	}
	if _, err := os.Stat(filepath.Join(home, "postgres")); err != nil {
		t.Fatalf("Postgres %d is missing (./dev test fetches it): %v", version, err)
	}
	return home
}

// notRoot makes cmd run as a user that is not root, which Postgres insists on: in a user namespace, else as the user
// postgres, whose dir must then be.
func notRoot(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return
	}
	namespace := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}},
	}
	probe := exec.Command("/bin/true")
	probe.SysProcAttr = namespace
	if probe.Run() == nil {
		cmd.SysProcAttr.Cloneflags, cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = namespace.Cloneflags, namespace.UidMappings, namespace.GidMappings
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
	const dacOverride = 1
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	cmd.SysProcAttr.AmbientCaps = []uintptr{dacOverride}
}

// newServer makes and starts a server of its own.
func newServer(t *testing.T, version int, settings ...string) *server {
	t.Helper()
	s := &server{t: t, home: homeOf(t, version), dir: filepath.Join(t.TempDir(), "data")}
	copyTree(t, template(t, s.home), s.dir, nil)
	s.set(append([]string{
		"wal_level = logical", "fsync = off", "shared_buffers = 16MB", "timezone = 'UTC'", "unix_socket_directories = ''", "wal_sender_timeout = '5s'",
		"listen_addresses = '127.0.0.1'", "max_wal_size = 64MB", "min_wal_size = 32MB",
	}, settings...)...)
	s.freePort()
	s.start()
	return s
}

// templates are data folders as initdb makes them, by the server's binaries. TestMain removes them.
var templates = map[string]string{}

func template(t *testing.T, home string) string {
	t.Helper()
	if dir := templates[home]; dir != "" {
		return dir
	}
	dir, err := os.MkdirTemp("", "postgres-template")
	if err != nil {
		t.Fatal(err)
	}
	templates[home] = dir
	initdb := exec.Command(filepath.Join(home, "initdb"), "-D", dir, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	notRoot(t, initdb, dir)
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	return dir
}

func removeTemplates() {
	for _, dir := range templates {
		_ = os.RemoveAll(dir)
	}
}

// set adds settings; it takes a start or a reload.
func (s *server) set(settings ...string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for _, line := range settings {
		fmt.Fprintln(f, line)
	}
}

func (s *server) freePort() {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(s.addr)
	s.set("port = " + port)
}

func (s *server) start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(filepath.Dir(s.dir), "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(s.home, "postgres"), "-D", s.dir)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	notRoot(s.t, s.cmd, s.dir)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.cmd
	s.t.Cleanup(func() { s.end(cmd, syscall.SIGQUIT) })
	for end := time.Now().Add(patience); ; {
		conn, err := pgx.Connect(context.Background(), "postgres://postgres@"+s.addr+"/postgres?sslmode=disable&connect_timeout=2")
		if err == nil {
			_ = conn.Close(context.Background())
			return
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			s.t.Fatalf("the server does not answer: %v\n%s", err, text)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// stop ends the server in good order, as a restart does.
func (s *server) stop() { s.end(s.cmd, syscall.SIGINT) }

// crash ends it at once.
func (s *server) crash() { s.end(s.cmd, syscall.SIGQUIT) }

func (s *server) end(cmd *exec.Cmd, signal syscall.Signal) {
	if cmd.ProcessState != nil {
		return
	}
	_ = cmd.Process.Signal(signal)
	late := time.AfterFunc(2*patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer late.Stop()
	_ = cmd.Wait()
}

// standby makes and starts a copy of the server that follows it. Its slots are not copied.
func (s *server) standby(d *db, settings ...string) *server {
	t := s.t
	t.Helper()
	c := &server{t: t, home: s.home, dir: filepath.Join(t.TempDir(), "data")}
	conn := d.connect("postgres")
	defer conn.Close(context.Background())
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	run("SELECT pg_backup_start('standby', true)")
	skip := []string{"postmaster.pid", "postmaster.opts", "pg_replslot", "pg_wal"}
	copyTree(t, s.dir, c.dir, skip)
	var label string
	if err := conn.QueryRow(context.Background(), "SELECT labelfile FROM pg_backup_stop(false)").Scan(&label); err != nil {
		t.Fatal(err)
	}
	copyTree(t, filepath.Join(s.dir, "pg_wal"), filepath.Join(c.dir, "pg_wal"), nil)
	for name, text := range map[string]string{"backup_label": label, "standby.signal": ""} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(c.dir, "pg_replslot"), 0o700); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(s.addr)
	c.set(append([]string{
		fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=postgres dbname=postgres application_name=standby'", host, port),
		"hot_standby = on", "hot_standby_feedback = on", "wal_receiver_status_interval = 1", "wal_retrieve_retry_interval = '200ms'",
	}, settings...)...)
	c.freePort()
	c.start()
	return c
}

// copyTree copies a folder whose files may vanish meanwhile.
func copyTree(t *testing.T, from, to string, skip []string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if slices.Contains(skip, strings.SplitN(rel, "/", 2)[0]) {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// promote makes a primary of a standby.
func (s *server) promote() {
	s.t.Helper()
	d := s.db("postgres")
	defer d.conn.Close(context.Background())
	d.exec("SELECT pg_promote(true, 20)")
	d.eventually("the standby is a primary", func() bool { return d.text("SELECT pg_is_in_recovery()::text") == "false" })
}

// db is a database of a server of the test's own; nothing of it is cleaned up.
func (s *server) db(name string) *db {
	s.t.Helper()
	d := &db{t: s.t, addr: s.addr, name: name}
	d.conn = d.connect(name)
	s.t.Cleanup(func() { _ = d.conn.Close(context.Background()) })
	return d
}
