//go:build bench

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// rawLog reads a database's log with the driver alone: the limit of anything that is built on it.
type rawLog struct {
	db   *harness.Database
	from string // a GTID set; Postgres: the name of a slot
}

// markLog says where the log ends now.
func markLog(t *testing.T, d *harness.Database) rawLog {
	t.Helper()
	l := rawLog{db: d}
	switch d.Kind {
	case harness.Postgres:
		l.from = fmt.Sprintf("raw_%s_%d", d.Name, time.Now().Unix())
		conn, err := pgconn.Connect(t.Context(), feederDSN(d))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := pglogrepl.CreateReplicationSlot(t.Context(), conn, l.from, "pgoutput", pglogrepl.CreateReplicationSlotOptions{}); err != nil {
			t.Fatal(err)
		}
		return l
	case harness.MariaDB:
		scan(t, d, "SELECT @@global.gtid_binlog_pos", &l.from)
	default:
		scan(t, d, "SELECT @@global.gtid_executed", &l.from)
	}
	l.from = strings.ReplaceAll(l.from, "\n", "")
	return l
}

func scan(t *testing.T, d *harness.Database, query string, into any) {
	t.Helper()
	if err := d.QueryRow(query).Scan(into); err != nil {
		t.Fatalf("%s: %s: %v", d.Kind, query, err)
	}
}

// read reads n rows and says how long that took, from the dump's request on.
func (l rawLog) read(t *testing.T, n int) time.Duration {
	t.Helper()
	if l.db.Kind == harness.Postgres {
		return l.readSlot(t, n)
	}
	host, port, err := net.SplitHostPort(services.Addr(strings.ToUpper(string(l.db.Kind))))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	flavor := string(l.db.Kind)
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: uint32(os.Getpid()) + 1<<30, Flavor: flavor, Host: host, Port: uint16(number),
		User: "cdc", Password: "cdc-password", Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	set, err := mysql.ParseGTIDSet(flavor, l.from)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	streamer, err := syncer.StartSyncGTID(set)
	if err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < n; {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		e, err := streamer.GetEvent(ctx)
		cancel()
		if err != nil {
			t.Fatalf("reading with the driver: %v", err)
		}
		if rows, ok := e.Event.(*replication.RowsEvent); ok && string(rows.Table.Schema) == l.db.Schema {
			seen += len(rows.Rows)
		}
	}
	return time.Since(begin)
}

func feederDSN(d *harness.Database) string {
	return fmt.Sprintf("postgres://cdc:cdc-password@%s/%s?replication=database", services.Addr("POSTGRES"), d.Name)
}

func (l rawLog) readSlot(t *testing.T, n int) time.Duration {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), feederDSN(l.db))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	begin := time.Now()
	err = pglogrepl.StartReplication(t.Context(), conn, l.from, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'invalidator'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < n; {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		m, err := conn.ReceiveMessage(ctx)
		cancel()
		if err != nil {
			t.Fatalf("reading with the driver: %v", err)
		}
		const walDataHeader = 25 // 'w', three 64-bit numbers
		if d, ok := m.(*pgproto3.CopyData); ok && len(d.Data) > walDataHeader && d.Data[0] == pglogrepl.XLogDataByteID && d.Data[walDataHeader] == 'I' {
			seen++
		}
	}
	return time.Since(begin)
}

// produceReady writes n records that stand ready in memory, with the producer settings of the service, to a topic of their
// own with as many partitions, and says how long that took.
func produceReady(t *testing.T, p *harness.Pipeline, ready []*kgo.Record, n int) time.Duration {
	t.Helper()
	topic := p.ID + "-ready"
	p.CreateTopic(topic, partitions)
	cl, err := kgo.NewClient(append(changelog.ProducerOpts(func(string) int32 { return 1 << 20 }),
		kgo.SeedBrokers(services.Addr("KAFKA")), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(1<<16))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	failed := make(chan error, 1)
	begin := time.Now()
	for i := range n {
		r := ready[i%len(ready)]
		cl.Produce(t.Context(), &kgo.Record{Key: r.Key, Value: r.Value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Fatalf("producing ready records: %v", err)
	default:
	}
	return time.Since(begin)
}
