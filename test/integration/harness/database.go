package harness

import (
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/go-mysql-org/go-mysql/driver" // "mysql"
	_ "github.com/jackc/pgx/v5/stdlib"          // "pgx"

	"invalidator/test/integration/services"
)

// Kind is a kind of database server.
type Kind string

const (
	MySQL    Kind = "mysql"
	MariaDB  Kind = "mariadb"
	Postgres Kind = "postgres"
)

// Kinds are all of them.
var Kinds = []Kind{MySQL, MariaDB, Postgres}

// Database is one database of a test's own.
type Database struct {
	*sql.DB
	Kind   Kind
	Name   string
	Schema string // as change records name it: Name, or "public" for Postgres
	Addr   string // host:port of the server as the feeder is told it: set it to a proxy's before New
	addr   string
}

var service = map[Kind]string{MySQL: "MYSQL", MariaDB: "MARIADB", Postgres: "POSTGRES"}

// NewDatabase makes a database and removes it when the test ends.
func NewDatabase(t testing.TB, kind Kind) *Database {
	t.Helper()
	d := &Database{Kind: kind, Name: Unique(), addr: services.Addr(service[kind])}
	d.Schema, d.Addr = d.Name, d.addr
	admin := d.open(t, "")
	create := "CREATE DATABASE " + d.Name
	if kind == Postgres {
		create += " OWNER app" // whose tables the feeder's account may publish
	}
	if _, err := admin.Exec(create); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	t.Cleanup(func() {
		d.DB.Close()
		d.drop(t, admin)
		admin.Close()
	})
	d.DB = d.open(t, d.Name)
	if kind == Postgres {
		d.Schema = "public"
		if _, err := admin.Exec("GRANT CREATE ON DATABASE " + d.Name + " TO cdc"); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	return d
}

// drop removes the database, and Postgres' slots in it first: they would keep the log for ever.
func (d *Database) drop(t testing.TB, admin *sql.DB) {
	drop := "DROP DATABASE " + d.Name
	if d.Kind == Postgres {
		drop += " WITH (FORCE)"
		const slots = `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active`
		if _, err := admin.Exec(slots, d.Name); err != nil {
			t.Errorf("ending slots of %s: %v", d.Name, err)
		}
		Await(t, "the slots of "+d.Name+" to be dropped", func() (bool, string) {
			_, err := admin.Exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, d.Name)
			return err == nil, fmt.Sprint(err)
		})
	}
	if _, err := admin.Exec(drop); err != nil {
		t.Errorf("%s: %v", drop, err)
	}
}

// open connects as the application, or to no database of the test's own as the administrator.
func (d *Database) open(t testing.TB, name string) *sql.DB {
	t.Helper()
	var driver, dsn string
	switch {
	case d.Kind == Postgres && name == "":
		driver, dsn = "pgx", fmt.Sprintf("postgres://postgres@%s/postgres", d.addr)
	case d.Kind == Postgres:
		driver, dsn = "pgx", fmt.Sprintf("postgres://app:app-password@%s/%s", d.addr, name)
	case name == "":
		driver, dsn = "mysql", fmt.Sprintf("root@%s/mysql", d.addr)
	default:
		driver, dsn = "mysql", fmt.Sprintf("app:app-password@%s/%s", d.addr, name)
	}
	db, err := sql.Open(driver, dsn)
	if err == nil {
		err = db.Ping()
	}
	if err != nil {
		t.Fatalf("connecting to %s at %s: %v (are the services up? ./dev up)", d.Kind, d.addr, err)
	}
	return db
}

// Do runs statements that must work.
func (d *Database) Do(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := d.Exec(s); err != nil {
			t.Fatalf("%s: %s: %v", d.Kind, s, err)
		}
	}
}
