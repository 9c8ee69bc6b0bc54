//go:build integration

package feed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/test/integration/harness"
)

// brokered is sources that are fed into a broker that the test stops.
type brokered struct {
	t      *testing.T
	broker *harness.Broker
	p      *harness.Pipeline
	dbs    []*harness.Database
	feeder *harness.Process
	topics *topics
}

func newBrokered(t *testing.T, kinds ...harness.Kind) *brokered {
	b := &brokered{t: t, broker: harness.NewBroker(t, "")}
	for _, kind := range kinds {
		d := harness.NewDatabase(t, kind)
		d.Do(t, "CREATE TABLE items (id int PRIMARY KEY, note varchar(20), body text)")
		if kind == harness.Postgres { // so that the server soon asks whether we are there
			d.Do(t, "ALTER DATABASE "+d.Name+" SET wal_sender_timeout = '5s'")
		}
		b.dbs = append(b.dbs, d)
	}
	b.p = pipelineOf(t, harness.Options{Databases: b.dbs, Kafka: b.broker.Addr})
	b.feeder = b.p.Feed()
	b.p.AwaitFeeding(b.dbs...)
	b.topics = readTopics(t, b.p)
	b.write(0, 1)
	b.p.AwaitFed(b.dbs...)
	return b
}

// write commits rows from up to before to, each in a transaction of its own.
func (b *brokered) write(from, to int) {
	b.t.Helper()
	for _, d := range b.dbs {
		for id := from; id < to; id++ {
			d.Do(b.t, fmt.Sprintf("INSERT INTO items (id, note) VALUES (%d, 'x')", id))
		}
	}
}

// want compares the topics with rows 0 up to before n: each is there. It returns how many records are more than once there.
func (b *brokered) want(n int) (twice int) {
	b.t.Helper()
	seen := map[string]int{}
	for _, r := range b.topics.all(b.t) {
		c := parse(b.t, r)
		seen[c.Source.Name+"/"+number(c.After["id"])]++
	}
	for _, d := range b.dbs {
		for id := range n {
			switch times := seen[fmt.Sprintf("%s/%d", b.p.Source(d.Kind), id)]; times {
			case 0:
				b.t.Errorf("%s: row %d is lost", d.Kind, id)
			default:
				twice += times - 1
			}
		}
	}
	return twice
}

// slot is what the slot of a Postgres source has confirmed, and who reads it; 0: nobody.
func slot(t *testing.T, d *harness.Database) (pid int, confirmed string) {
	t.Helper()
	err := d.QueryRow("SELECT coalesce(active_pid, 0), confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'inv_"+d.Name+"'").
		Scan(&pid, &confirmed)
	if err != nil {
		t.Fatal(err)
	}
	return pid, confirmed
}

// The position moves only past records that the broker has: what was written while it was away comes after a crash.
func TestE15PositionWaitsForTheBroker(t *testing.T) {
	b := newBrokered(t, harness.MySQL, harness.Postgres)
	b.broker.Stop()
	b.write(1, 1001)
	b.feeder.Kill()
	b.broker.Start()
	b.feeder = b.p.Feed()
	b.p.AwaitFed(b.dbs...)
	b.want(1001)
	b.feeder.Terminate()
}

// A record that the broker refuses as too large, between good ones, becomes a slim one: it is never skipped.
func TestE15ARefusedRecordBetweenGoodOnes(t *testing.T) {
	b := newBrokered(t, harness.MySQL, harness.Postgres)
	// The topic takes less than it said when the feeder asked.
	limit := "20000"
	for _, d := range b.dbs {
		topic := b.p.Source(d.Kind) + "." + d.Schema + ".items"
		res, err := b.topics.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, topic)
		if err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
		d.Do(t, "INSERT INTO items (id, note) VALUES (1, 'x')")
		d.Do(t, fmt.Sprintf("INSERT INTO items (id, note, body) VALUES (2, 'large', '%s')", randomText(40_000)))
		d.Do(t, "INSERT INTO items (id, note) VALUES (3, 'x')")
	}
	b.p.AwaitFed(b.dbs...)
	b.want(4)
	slim := 0
	for _, r := range b.topics.all(t) {
		if c := parse(t, r); number(c.After["id"]) == "2" {
			if !strings.Contains(string(r.Value), `"slim":true`) || c.After["note"] != "large" { // which the mapping names
				t.Errorf("the large row: %.300s", r.Value)
			}
			slim++
		}
	}
	if log := b.feeder.Log(); !strings.Contains(log, "the topic refuses records") {
		t.Errorf("nothing was refused:\n%s", log)
	}
	if slim < len(b.dbs) {
		t.Errorf("%d large rows", slim)
	}
	b.feeder.Terminate()
}

// Status messages to the server go on while Kafka is away and the source waits: the server does not hang up.
func TestF3TheServerIsAnsweredWhileKafkaIsAway(t *testing.T) {
	b := newBrokered(t, harness.Postgres)
	d := b.dbs[0]
	reader, _ := slot(t, d)
	if reader == 0 {
		t.Fatal("nobody reads the slot")
	}
	b.broker.Stop()
	next := 1
	for begin := time.Now(); time.Since(begin) < 20*time.Second; next++ { // four times what the server waits
		b.write(next, next+1)
		if pid, _ := slot(t, d); pid != reader {
			t.Fatalf("after %s the slot is read by %d, and was by %d\n%s", time.Since(begin), pid, reader, b.feeder.Log())
		}
		<-time.After(100 * time.Millisecond)
	}
	b.broker.Start()
	b.p.AwaitFed(d)
	b.want(next)
	b.feeder.Terminate()
}

// What is confirmed to the server is never above what the broker has acknowledged, whatever the server asks meanwhile.
func TestF11NothingIsConfirmedThatTheBrokerDoesNotHave(t *testing.T) {
	b := newBrokered(t, harness.Postgres)
	d := b.dbs[0]
	b.feeder.Terminate()
	b.feeder = b.p.Feed()
	b.p.AwaitFed(d)
	if twice := b.want(1); twice > 1 {
		t.Errorf("a clean restart sent %d transactions again", twice)
	}
	before := d.QueryRow("SELECT pg_current_wal_lsn()::text")
	var end string
	if err := before.Scan(&end); err != nil {
		t.Fatal(err)
	}
	b.broker.Stop()
	b.write(1, 11)
	for begin := time.Now(); time.Since(begin) < 12*time.Second; { // the server asks each 2.5 s
		var above bool
		if err := d.QueryRow("SELECT confirmed_flush_lsn > $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2", end, "inv_"+d.Name).Scan(&above); err != nil {
			t.Fatal(err)
		}
		if above {
			_, confirmed := slot(t, d)
			t.Fatalf("confirmed %s, and the broker has what lies before %s", confirmed, end)
		}
		<-time.After(200 * time.Millisecond)
	}
	b.feeder.Kill()
	b.broker.Start()
	b.feeder = b.p.Feed()
	b.p.AwaitFed(d)
	b.want(11)
	b.feeder.Terminate()
}

func randomText(n int) string {
	var s strings.Builder
	for i := uint64(88172645463325252); s.Len() < n; {
		i ^= i << 13
		i ^= i >> 7
		i ^= i << 17
		fmt.Fprintf(&s, "%016x", i)
	}
	return s.String()[:n]
}
