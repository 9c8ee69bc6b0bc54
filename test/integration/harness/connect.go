package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"invalidator/test/integration/services"
)

// Properties are those of a worker or a connector of Kafka Connect.
type Properties map[string]string

func (p Properties) write(t testing.TB, path string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", name, p[name])
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Connect is a running Kafka Connect.
type Connect struct {
	rest  string
	names []string // of the connectors
	cmd   *exec.Cmd
	ended chan struct{} // closed once the process is gone
}

// QuickJava suits a JVM that lives for seconds.
const QuickJava = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

// StartConnect runs Kafka Connect with these connectors, and ends it with the test. In dir it keeps how far they have read.
func StartConnect(t testing.TB, dir, javaOptions string, connectors []Properties) *Connect {
	t.Helper()
	rest := "http://" + FreeAddr(t)
	worker := Properties{
		"bootstrap.servers":                 services.Addr("KAFKA"),
		"listeners":                         rest,
		"offset.storage.file.filename":      filepath.Join(dir, "offsets"),
		"task.shutdown.graceful.timeout.ms": fmt.Sprint(Patience.Milliseconds()),
		"plugin.discovery":                  "service_load", // by what the jars say of themselves: to scan them takes seconds
		"key.converter":                     jsonConverter,
		"value.converter":                   jsonConverter,
	}
	c := &Connect{rest: rest, ended: make(chan struct{})}
	args := []string{"connect", worker.write(t, filepath.Join(dir, "worker.properties"))}
	for _, p := range connectors {
		p["schema.history.internal.file.filename"] = filepath.Join(dir, p["name"]+".history")
		args = append(args, p.write(t, filepath.Join(dir, p["name"]+".properties")))
		c.names = append(c.names, p["name"])
	}
	log, err := os.Create(filepath.Join(dir, "connect.log"))
	if err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(filepath.Join(services.Root(), "dev"), args...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS="+javaOptions)
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("starting Kafka Connect: %v", err)
	}
	go func() {
		c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.ended
		log.Close()
		if t.Failed() {
			showLog(t, log.Name())
		}
	})
	return c
}

// showLog logs the lines of Connect's log that tell of trouble, and its end.
func showLog(t testing.TB, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	lines := strings.Split(string(data), "\n")
	tail := max(0, len(lines)-20)
	for i, line := range lines {
		if i >= tail || strings.Contains(line, " ERROR ") || strings.Contains(line, " WARN ") || strings.HasPrefix(line, "Caused by") {
			t.Logf("%.600s", line)
		}
	}
}

// Stop ends Connect in order: what its connectors have read is on their topics then.
func (c *Connect) Stop(t testing.TB) {
	t.Helper()
	c.cmd.Process.Signal(syscall.SIGTERM)
	Await(t, "Kafka Connect to end", func() (bool, string) { return c.hasEnded(), "it runs" })
}

func (c *Connect) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// AwaitRunning waits until every connector and its task run.
func (c *Connect) AwaitRunning(t testing.TB) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, name := range c.names {
		Await(t, "connector "+name+" to run", func() (bool, string) {
			if c.hasEnded() {
				t.Fatalf("Kafka Connect has ended: %v", c.cmd.ProcessState)
			}
			answer, err := client.Get(c.rest + "/connectors/" + name + "/status")
			if err != nil {
				return false, err.Error()
			}
			defer answer.Body.Close()
			type part struct{ State, Trace string }
			var status struct {
				Connector part
				Tasks     []part
			}
			if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
				return false, err.Error()
			}
			for _, p := range append(status.Tasks, status.Connector) {
				if p.State == "FAILED" {
					t.Fatalf("connector %s has failed: %s", name, p.Trace)
				}
			}
			return status.Connector.State == "RUNNING" && len(status.Tasks) == 1 && status.Tasks[0].State == "RUNNING", fmt.Sprintf("%+v", status)
		})
	}
}

const jsonConverter = "org.apache.kafka.connect.json.JsonConverter"

// Connector reads a database into topics that begin with prefix. All that is not named here is Debezium's default.
func Connector(d *Database, prefix string, schemas bool) Properties {
	host, port, _ := strings.Cut(services.Addr(strings.ToUpper(string(d.Kind))), ":")
	p := Properties{
		"name":                              prefix,
		"topic.prefix":                      prefix,
		"topic.creation.default.partitions": "3",
		"topic.creation.default.replication.factor": "1",
		"key.converter":                  jsonConverter,
		"key.converter.schemas.enable":   fmt.Sprint(schemas),
		"value.converter":                jsonConverter,
		"value.converter.schemas.enable": fmt.Sprint(schemas),
		"snapshot.mode":                  "no_data",
		"database.hostname":              host,
		"database.port":                  port,
	}
	switch d.Kind {
	case MySQL:
		serverID := os.Getpid() * 10 // no other replica's
		if schemas {
			serverID++
		}
		maps.Copy(p, Properties{
			"connector.class":         "io.debezium.connector.mysql.MySqlConnector",
			"database.user":           "cdc",
			"database.password":       "cdc-password",
			"database.server.id":      fmt.Sprint(serverID),
			"database.include.list":   d.Name,
			"include.schema.changes":  "false",
			"snapshot.locking.mode":   "none", // nobody alters a table meanwhile, and others use the server
			"schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
			"schema.history.internal.store.only.captured.databases.ddl": "true",
		})
	case Postgres:
		slot := strings.NewReplacer("-", "_").Replace(prefix)
		maps.Copy(p, Properties{
			"connector.class":             "io.debezium.connector.postgresql.PostgresConnector",
			"database.user":               "cdc",
			"database.password":           "cdc-password",
			"database.dbname":             d.Name,
			"plugin.name":                 "pgoutput",
			"slot.name":                   slot,
			"publication.name":            slot,
			"publication.autocreate.mode": "filtered",
			"schema.include.list":         d.Schema,
		})
	}
	return p
}
