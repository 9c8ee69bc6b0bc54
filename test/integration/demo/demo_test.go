//go:build integration

package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"invalidator/internal/demo"
	"invalidator/test/integration/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemo(t *testing.T) {
	story, err := play(t, "")
	if err != nil {
		t.Fatalf("%v\n%s", err, story)
	}
	if !strings.Contains(story, "passed: no copy is stale, and none was missing at the start") {
		t.Errorf("the end is missing:\n%s", story)
	}
	nothingLeft(t, story)
}

func TestInterruptedDemo(t *testing.T) {
	story, err := play(t, "4. A delete")
	if err == nil {
		t.Errorf("no error:\n%s", story)
	}
	nothingLeft(t, story)
}

// play runs the demo, and interrupts it when it tells until.
func play(t *testing.T, until string) (story string, err error) {
	t.Setenv("TMPDIR", t.TempDir()) // for the log, which an interrupted demo keeps
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out listener
	if until != "" {
		out.until, out.cancel = until, cancel
	}
	err = demo.Run(ctx, demo.Options{
		Out: &out, Updates: 20,
		Services: demo.Services{
			Kafka: services.Addr("KAFKA"), MySQL: services.Addr("MYSQL"), MariaDB: services.Addr("MARIADB"),
			Postgres: services.Addr("POSTGRES"), Etcd: services.Addr("ETCD"),
			Memcached: [4]string{services.Addr("MEMCACHED1"), services.Addr("MEMCACHED2"), services.Addr("MEMCACHED3"), services.Addr("MEMCACHED4")},
		},
	})
	return out.String(), err
}

type listener struct {
	bytes.Buffer
	until  string
	cancel func()
}

func (l *listener) Write(b []byte) (int, error) {
	if l.cancel != nil && strings.Contains(string(b), l.until) {
		l.cancel()
	}
	return l.Buffer.Write(b)
}

// nothingLeft looks everywhere for the demo's id, which its first line tells.
func nothingLeft(t *testing.T, story string) {
	t.Helper()
	first, _, _ := strings.Cut(story, "\n")
	id := strings.TrimPrefix(first, "invalidator demo ")
	if len(id) != 6 {
		t.Fatalf("no id in %q", first)
	}
	for _, service := range []string{"MYSQL", "MARIADB"} {
		for _, name := range mysqlDatabases(t, services.Addr(service)) {
			complain(t, id, service+" database", name)
		}
	}
	for _, name := range postgresNames(t) {
		complain(t, id, "Postgres database or slot", name)
	}
	for _, name := range kafkaNames(t) {
		complain(t, id, "topic or group", name)
	}
	for _, name := range etcdKeys(t) {
		complain(t, id, "etcd key", name)
	}
}

func complain(t *testing.T, id, what, name string) {
	t.Helper()
	if strings.Contains(name, "demo_"+id) || strings.Contains(name, "demo-"+id) {
		t.Errorf("the demo left a %s behind: %s", what, name)
	}
}

func mysqlDatabases(t *testing.T, addr string) (names []string) {
	conn, err := client.Connect(addr, "app", "app-password", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r, err := conn.Execute("SHOW DATABASES")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range r.RowNumber() {
		name, err := r.GetString(i, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func postgresNames(t *testing.T) []string {
	conn, err := pgx.Connect(t.Context(), "postgres://app:app-password@"+services.Addr("POSTGRES")+"/shop?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT datname::text FROM pg_database UNION ALL SELECT slot_name::text FROM pg_replication_slots")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func kafkaNames(t *testing.T) []string {
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := adm.ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(topics.Names(), groups.Groups()...)
}

func etcdKeys(t *testing.T) (keys []string) {
	cl, err := clientv3.New(clientv3.Config{Endpoints: []string{services.Addr("ETCD")}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	resp, err := cl.Get(t.Context(), "/demo-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}
