//go:build integration

package integration

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// binaryFiles are the files of two teams for one table: the clients of the first send keys in base64 where they have to, the second's
// file does not say so. In MySQL and MariaDB a token's bytes are the key's; in Postgres it is a text.
func binaryFiles(schema string) map[string]string {
	const mappings = "mappings:\n  - name: pages\n    table: %s.pages\n    keys:\n"
	return map[string]string{
		"a.yaml": "version: 1\nteam: a\npools: [token, url, report]\nreaders: meta\nbinary_keys: base64\n" + fmt.Sprintf(mappings, schema) +
			"      - {key: \"token:{token}\", hot: 2}\n      - url:of {url}\n      - {key: \"report:{url}\", action: stale, stale_for: 55s}\n",
		"b.yaml": "version: 1\nteam: b\npools: [plain]\nreaders: meta\n" + fmt.Sprintf(mappings, schema) + "      - plain:{url}\n      - plain:{id}\n",
	}
}

// TestBinaryKeys: keys with spaces, control bytes and bytes that are no UTF-8, as a client stores them by the base64 flag, are gone (or
// stale) on the primary, the replica and the hot copies when their row changes: under the old values and the new ones. Where no file
// says that clients do so, that template is in error for the row, which is counted and parked, and the team's other template deletes.
func TestBinaryKeys(t *testing.T) {
	for _, kind := range harness.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, nodes := harness.NewDatabase(t, kind), harness.StartNodes(t, 4)
			column, literal := "BINARY(16)", func(token string) string { return fmt.Sprintf("X'%x'", token) }
			tokens := []string{"\x00\xff \r\nmd plain:1\x7f", "0123456789abcde\x00"} // 16 bytes each
			if kind == harness.Postgres {
				column, literal = "text", func(token string) string { return "'" + token + "'" }
				tokens = []string{"a token\r\nmd plain:1", "another\ttoken\x7f"}
			}
			db.Do(t, "CREATE TABLE pages (id BIGINT PRIMARY KEY, token "+column+", url VARCHAR(200))")
			if kind == harness.Postgres {
				db.Do(t, "ALTER TABLE pages REPLICA IDENTITY FULL")
			}
			record := sink.Record{Kind: "points160", KeyPrefix: "app:", Shards: shards(nodes)}
			p := harness.New(t, harness.Options{Databases: []*harness.Database{db}, Mappings: binaryFiles(db.Schema), Record: record, Settle: 200 * time.Millisecond})
			worker := p.Work()
			p.Feed()
			p.AwaitFeeding(db)
			db.Do(t, "INSERT INTO pages VALUES (1, "+literal(tokens[0])+", 'a url')") // makes the topic
			p.AwaitFed(db)
			p.AwaitDelivered()
			parked := p.Parked()

			b := binaryCache{t: t, record: record}
			keys := map[string]int{"plain:1": 0, "url:of a url": 0, "url:of b\u00a0\turl": 0}
			stale := []string{"report:a url", "report:b\u00a0\turl"}
			others := []string{"url:of", "url:of other url", "plain:2", "token:"} // what a key cut short would hit, and another row's
			for _, token := range tokens {
				keys["token:"+token] = 2
			}
			for key, hot := range keys {
				b.store(key, hot)
			}
			for _, key := range append(stale, others...) {
				b.store(key, 0)
			}
			tab := "'b\u00a0\turl'"
			db.Do(t, "UPDATE pages SET token = "+literal(tokens[1])+", url = "+tab+" WHERE id = 1")
			p.AwaitFed(db)
			p.AwaitDelivered()

			for key, hot := range keys {
				b.want(key, hot, "EN")
			}
			for _, key := range stale {
				b.want(key, 0, "HD t5", "X", "W")
			}
			for _, key := range others {
				b.want(key, 0, "HD t9")
			}
			if got := p.Parked() - parked; got != 1 { // the change, for both of its images
				t.Errorf("parked %d records, want 1", got)
			}
			for _, want := range []string{"a template gave no key", "plain:{url}", "bad_key", "a space or a control character"} {
				if !strings.Contains(worker.Log(), want) {
					t.Errorf("the worker's log lacks %q", want)
				}
			}
		})
	}
}

// binaryCache is a client that sends every key in base64, to the nodes that the ring names for the key's own bytes.
type binaryCache struct {
	t      *testing.T
	record sink.Record
}

// each visits the copies of a key with the start and the flags of a command.
func (b *binaryCache) each(key string, hot int, do func(c sink.Copy, wire string)) {
	b.t.Helper()
	record := b.record
	record.Epoch, record.At = 1, time.Now()
	topology, err := sink.NewTopology(&record)
	if err != nil {
		b.t.Fatal(err)
	}
	copies := topology.AppendCopies(nil, key, hot)
	if want := 2 * (1 + hot); len(copies) != want {
		b.t.Fatalf("%q has %d copies, want %d", key, len(copies), want)
	}
	for _, c := range copies {
		do(c, base64.StdEncoding.EncodeToString([]byte(c.Key)))
	}
}

func (b *binaryCache) store(key string, hot int) {
	b.t.Helper()
	b.each(key, hot, func(c sink.Copy, wire string) {
		if got := b.say(c.Node, "ms "+wire+" 3 b T999\r\nold"); got != "HD" {
			b.t.Fatalf("storing %q: %s", c.Key, got)
		}
	})
}

// want says how every copy's answer begins, and what stands in it.
func (b *binaryCache) want(key string, hot int, begins string, holds ...string) {
	b.t.Helper()
	b.each(key, hot, func(c sink.Copy, wire string) {
		got := b.say(c.Node, "mg "+wire+" b t")
		ok := strings.HasPrefix(got, begins)
		for _, word := range holds {
			ok = ok && strings.Contains(got+" ", " "+word+" ")
		}
		if !ok {
			b.t.Errorf("%q at %s: %s, want %s %v", c.Key, c.Node, got, begins, holds)
		}
	})
}

// say sends one command over a connection of its own, and returns the first line of its answer.
func (b *binaryCache) say(addr, command string) string {
	b.t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		b.t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimRight(line, "\r\n")
}
